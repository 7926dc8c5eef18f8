package archs

import "fmt"

// conv adds a square convolution without bias; group is 1 or, for a depthwise
// one, cin. w is drawn for a following ReLU.
func conv(b *Builder, x string, cin, cout, kernel, stride, group int) string {
	pad := kernel / 2
	w := b.Weight("weight", He(cin/group*kernel*kernel), cout, cin/group, kernel, kernel)
	return b.Node("Conv", Attrs{
		"dilations":    []int{1, 1},
		"group":        group,
		"kernel_shape": []int{kernel, kernel},
		"pads":         []int{pad, pad, pad, pad},
		"strides":      []int{stride, stride},
	}, x, w)
}

// batchNorm adds inference-time batch normalization of c channels, with
// statistics close to mean 0 and variance 1 and gains close to gain.
func batchNorm(b *Builder, x string, c int, gain float64) string {
	return b.Node("BatchNormalization", Attrs{"epsilon": 1e-5, "momentum": 0.9, "training_mode": 0}, x,
		b.Weight("weight", Fill{Mean: gain, Std: 0.05 * gain}, c),
		b.Weight("bias", Near(0), c),
		b.Buffer("running_mean", Near(0), c),
		b.Buffer("running_var", Near(1), c))
}

// classify adds global average pooling and a linear layer to classes.
func classify(b *Builder, x string, c, classes int) string {
	x = b.Scope("avgpool").Node("GlobalAveragePool", nil, x)
	x = b.Node("Flatten", Attrs{"axis": 1}, x)
	return gemm(b.Scope("fc"), x, c, classes)
}

// gemm adds a linear layer on a matrix, its weight [out, in].
func gemm(b *Builder, x string, in, out int) string {
	return b.Node("Gemm", Attrs{"alpha": 1.0, "beta": 1.0, "transB": 1}, x,
		b.Weight("weight", LeCun(in), out, in),
		b.Weight("bias", Near(0), out))
}

// ResNetConfig sizes a residual network of bottleneck blocks.
type ResNetConfig struct {
	Blocks  [4]int // blocks of each stage
	Width   int    // channels of the stem
	Image   int    // height and width of the input
	Classes int
}

// ResNet50 is the published size.
var ResNet50 = ResNetConfig{Blocks: [4]int{3, 4, 6, 3}, Width: 64, Image: 224, Classes: 1000}

// ResNet builds a residual network (He et al., 2016, "Deep Residual Learning
// for Image Recognition") in its v1.5 form: a bottleneck's stride is on its 3x3
// convolution. Input [batch, 3, Image, Image], output [batch, Classes].
func ResNet(c ResNetConfig, seed uint64) (*Model, error) {
	const expansion = 4
	b := New("resnet", 17)
	x := b.Input("input", Float32, "batch", 3, c.Image, c.Image)
	x = conv(b.Scope("conv1"), x, 3, c.Width, 7, 2, 1)
	x = batchNorm(b.Scope("bn1"), x, c.Width, 1)
	x = b.Scope("relu").Node("Relu", nil, x)
	x = b.Scope("maxpool").Node("MaxPool", Attrs{
		"ceil_mode":    0,
		"kernel_shape": []int{3, 3},
		"pads":         []int{1, 1, 1, 1},
		"strides":      []int{2, 2},
	}, x)
	cin := c.Width
	for i, blocks := range c.Blocks {
		width := c.Width << i
		for j := range blocks {
			s := b.Scope(fmt.Sprintf("layer%d.%d", i+1, j))
			stride := 1
			if i > 0 && j == 0 {
				stride = 2
			}
			x = bottleneck(s, x, cin, width, expansion*width, stride)
			cin = expansion * width
		}
	}
	b.Output("output", classify(b, x, cin, c.Classes), Float32, "batch", c.Classes)
	return b.Model(seed)
}

// bottleneck adds a 1x1, a 3x3 and a 1x1 convolution beside a shortcut. The
// branch's last gain is small and the projection's below 1, so that the sum
// does not grow from block to block.
func bottleneck(b *Builder, x string, cin, width, cout, stride int) string {
	relu := b.Scope("relu")
	y := conv(b.Scope("conv1"), x, cin, width, 1, 1, 1)
	y = batchNorm(b.Scope("bn1"), y, width, 1)
	y = relu.Node("Relu", nil, y)
	y = conv(b.Scope("conv2"), y, width, width, 3, stride, 1)
	y = batchNorm(b.Scope("bn2"), y, width, 1)
	y = relu.Node("Relu", nil, y)
	y = conv(b.Scope("conv3"), y, width, cout, 1, 1, 1)
	y = batchNorm(b.Scope("bn3"), y, cout, 0.25)
	if stride != 1 || cin != cout {
		x = conv(b.Scope("downsample.0"), x, cin, cout, 1, stride, 1)
		x = batchNorm(b.Scope("downsample.1"), x, cout, 0.7)
	}
	return relu.Node("Relu", nil, b.Node("Add", nil, y, x))
}

// MobileNetConfig sizes a MobileNetV1.
type MobileNetConfig struct {
	Width   int // channels of the stem
	Image   int // height and width of the input
	Classes int
}

// MobileNetV1 is the published size at width multiplier 1.
var MobileNetV1 = MobileNetConfig{Width: 32, Image: 224, Classes: 1000}

// MobileNet builds a network of depthwise separable convolutions (Howard et
// al., 2017, "MobileNets") with ReLU6 as Clip. Input [batch, 3, Image, Image],
// output [batch, Classes].
func MobileNet(c MobileNetConfig, seed uint64) (*Model, error) {
	b := New("mobilenet", 17)
	layer := func(name string, x string, cin, cout, kernel, stride, group int) string {
		x = conv(b.Scope(name+".0"), x, cin, cout, kernel, stride, group)
		x = batchNorm(b.Scope(name+".1"), x, cout, 1)
		relu6 := b.Scope(name + ".2")
		return relu6.Node("Clip", nil, x, relu6.Scalar(0), relu6.Scalar(6))
	}
	x := b.Input("input", Float32, "batch", 3, c.Image, c.Image)
	x = layer("features.0", x, 3, c.Width, 3, 2, 1)
	cin := c.Width
	for i, s := range []struct{ widen, stride int }{
		{2, 1}, {4, 2}, {4, 1}, {8, 2}, {8, 1}, {16, 2},
		{16, 1}, {16, 1}, {16, 1}, {16, 1}, {16, 1}, {32, 2}, {32, 1},
	} {
		cout := s.widen * c.Width
		x = layer(fmt.Sprintf("features.%d.depthwise", i+1), x, cin, cin, 3, s.stride, cin)
		x = layer(fmt.Sprintf("features.%d.pointwise", i+1), x, cin, cout, 1, 1, 1)
		cin = cout
	}
	b.Output("output", classify(b, x, cin, c.Classes), Float32, "batch", c.Classes)
	return b.Model(seed)
}
