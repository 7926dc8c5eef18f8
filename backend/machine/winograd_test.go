package machine

import "testing"

func TestTilesWinWhereThereAreChannelsAndPixels(t *testing.T) {
	for _, x := range []struct {
		c    Conv
		tile int
	}{
		{Conv{64, 64, 1, 56, 56}, 4},
		{Conv{64, 64, 1, 224, 224}, 4},
		{Conv{16, 16, 4, 32, 32}, 4},
		{Conv{256, 256, 1, 14, 14}, 2},
		{Conv{512, 512, 1, 7, 7}, 2},
		{Conv{256, 256, 16, 14, 14}, 4},
		{Conv{4, 4, 1, 64, 64}, 0},
	} {
		if tile := Tile(x.c); tile != x.tile {
			t.Errorf("%+v: tiles of %d, want %d", x.c, tile, x.tile)
		}
		for _, tile := range []int{2, 4} {
			if work, cost := Default.Tiled(x.c, tile); work >= cost {
				t.Errorf("%+v: products cost more than it all by tiles of %d", x.c, tile)
			}
		}
		if Default.Patches(x.c) >= Default.Direct(x.c) {
			t.Errorf("%+v: patches cost more than all", x.c)
		}
	}
}
