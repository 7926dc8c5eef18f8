package oip_test

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"testing"

	"spc/ir/tensor"
	"spc/serve/oip"
)

// image returns as many floats as an image of 224 by 224 has.
func image() *tensor.Tensor {
	rng := rand.New(rand.NewPCG(1, 2))
	t := tensor.New(tensor.F32, 1, 3, 224, 224)
	for i, data := 0, t.F32s(); i < len(data); i++ {
		data[i] = float32(rng.NormFloat64())
	}
	return t
}

func BenchmarkReadJSON(b *testing.B) {
	short, err := (&oip.Request{Inputs: []oip.Tensor{{Name: "x", Data: image()}}}).Body()
	if err != nil {
		b.Fatal(err)
	}
	long := []byte(`{"inputs":[{"name":"x","shape":[1,3,224,224],"datatype":"FP32","data":[`)
	for i, v := range image().F32s() { // as Python writes what was f32
		if i > 0 {
			long = append(long, ", "...)
		}
		long = strconv.AppendFloat(long, float64(v), 'g', -1, 64)
	}
	long = append(long, "]}]}"...)
	pixels := []byte(`{"inputs":[{"name":"x","shape":[1,3,224,224],"datatype":"UINT8","data":[`)
	for i, v := range image().F32s() {
		if i > 0 {
			pixels = append(pixels, ',')
		}
		pixels = fmt.Append(pixels, uint8(v*40))
	}
	pixels = append(pixels, "]}]}"...)
	for _, c := range []struct {
		name string
		body []byte
	}{{"shortest", short.JSON}, {"float64", long}, {"pixels", pixels}} {
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(int64(len(c.body)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := oip.ReadRequest(c.body, len(c.body), oip.Limits{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkReadBinary(b *testing.B) {
	body, err := (&oip.Request{Inputs: []oip.Tensor{{Name: "x", Data: image(), Binary: true}}}).Body()
	if err != nil {
		b.Fatal(err)
	}
	all := body.Bytes()
	b.SetBytes(int64(len(all)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := oip.ReadRequest(all, len(body.JSON), oip.Limits{}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkWriteJSON(b *testing.B) {
	r := &oip.Response{Outputs: []oip.Tensor{{Name: "x", Data: image()}}}
	b.ReportAllocs()
	for b.Loop() {
		body, err := r.Body()
		if err != nil {
			b.Fatal(err)
		}
		n, err := body.WriteTo(io.Discard)
		if err != nil {
			b.Fatal(err)
		}
		b.SetBytes(n)
	}
}

// What encoding/json takes for the same, without a check of it.
func BenchmarkEncodingJSON(b *testing.B) {
	body, err := (&oip.Request{Inputs: []oip.Tensor{{Name: "x", Data: image()}}}).Body()
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(body.JSON)))
	b.ReportAllocs()
	for b.Loop() {
		var r struct {
			Inputs []struct {
				Name, Datatype string
				Shape          []int
				Data           []float32
			}
		}
		if err := json.Unmarshal(body.JSON, &r); err != nil {
			b.Fatal(err)
		}
	}
}
