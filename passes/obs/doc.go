// Package obs moves the weights of a layer so that its output changes least when
// some of them become zero.
//
// A layer is a matrix W[M,K], row-major float32, and the Gram matrix H[K,K] =
// sum x x^T of the columns x that W will multiply. The error of other weights W'
// on those columns is tr((W-W') H (W-W')^T). The solvers minimise it for a pattern
// of package prune:
//
//   - Exact is the Optimal Brain Surgeon (Hassibi and Stork 1993) as ExactOBS runs
//     it (Frantar and Alistarh, arXiv 2208.11580): remove the unit whose loss is
//     the smallest, update the survivors and the inverse, repeat.
//   - SparseGPT (Frantar and Alistarh, arXiv 2301.00774) goes through the columns
//     once, left to right, and lets only the columns to the right make up.
//   - ALPS (Meng et al., arXiv 2406.07831) finds the mask by the alternating direction
//     method of multipliers and the weights by conjugate gradients (Descend).
//   - Swap exchanges units of a mask from elsewhere as long as the loss falls.
//   - Solve finds the survivors' best weights for a mask from elsewhere, the
//     closed form of what AdaPrune (arXiv 2102.08124) trains.
//
// Round has weights become whole numbers of steps, of package steps, as GPTQ does.
//
// Aim moves the target to the outputs that the dense model had, Correct matches the
// outputs' mean and variance, Saliency and Wanda (arXiv 2306.11695) rank weights for
// prune.Select.
//
// All matrices are float64 inside. Results are the same bytes for any number of
// workers and for every width of vectors: each sum has one order. The package
// imports internal/isa, internal/parallel, ir, passes/prune and passes/steps and nothing else of the module.
package obs
