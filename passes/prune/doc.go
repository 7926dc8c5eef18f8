// Package prune decides which weights of a network stay.
//
// It works on matrices W[M,K], row-major float32, a row an output channel: a
// convolution is seen as [Cout, Cin*kh*kw], a MatMul or Gemm by its columns.
// Each weight has a saliency, |w| unless the layer brings another, in units
// whose squares add up: Wanda's |w|*||x||, Taylor's |w| times the l2 norm of the
// loss's gradients, or the square root of the OBS error w^2/[H^-1]jj. A Pattern
// says which weights stand or fall together, an Allocation how the sparsity is
// spread over the layers, and Select returns a mask for each layer.
//
// The uniform rule is that of the published algorithm: every row is sorted by
// saliency, each sorted column is ranked by its raw l2 norm (not divided by
// the number of rows), one threshold over the columns of all layers meets the
// target, and the kept prefix is scattered back, so that all rows of a layer
// keep the same number of weights.
//
// All results are the same bytes for any number of workers. Ties are settled
// by position: the earlier layer, row, column stays. Weights that arrive as
// zero stay zero; they are dropped before any other and count as dropped.
//
// Graph does it for the weights of a graph, or, for whole channels, makes the graph
// smaller: a channel goes together with whatever computes it, is added to it, or
// reads it, as far as the operators in between are known to keep channels apart.
//
// The package imports ir, ir/op and ir/tensor and nothing else of the module.
package prune
