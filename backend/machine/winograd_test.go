package machine

import "testing"

func TestTilesWinWhereThereAreChannelsAndPixels(t *testing.T) {
	for _, x := range []struct {
		c     Conv
		tile  int
		tiles bool // they are faster than the direct product
	}{
		{Conv{64, 64, 1, 56, 56}, 4, true},
		{Conv{64, 64, 1, 224, 224}, 4, true},
		{Conv{16, 16, 4, 32, 32}, 4, true},
		{Conv{256, 256, 1, 14, 14}, 2, true},
		{Conv{512, 512, 1, 7, 7}, 2, true},
		{Conv{256, 256, 16, 14, 14}, 4, true},
		{Conv{4, 4, 1, 64, 64}, 4, false},
	} {
		tile, work, cost := Default.Tiles(x.c)
		if tile != x.tile || cost < Default.Direct(x.c) != x.tiles {
			t.Errorf("%+v: tiles of %d at %.2g of direct %.2g", x.c, tile, cost, Default.Direct(x.c))
		}
		if work >= cost || Default.Patches(x.c) >= Default.Direct(x.c) {
			t.Errorf("%+v: a part costs more than the whole", x.c)
		}
	}
}
