// Package zoo checks every architecture that the file list names, in small forms that need neither Python nor ONNX Runtime.
//
// graphs/NAME.onnx.gz is the ONNX file that export/export.py --small writes, without most of its weights: in the place of
// elements a tensor has the mean and the standard deviation of what Read draws for it, seeded by its name. These are those of
// the exported weights, scaled so that each product gives outputs of about 1. What compresses well, as masks and indices do,
// stays as it is. graphs/outputs.json has, for each output that is compared, some of the elements that ONNX Runtime computes
// from the same weights and inputs. make zoo-graphs makes both again. Folders below have the same of forms in which people have
// transformers (Forms), which make zoo-forms makes of the graphs. results holds what package bench measured of members
// in full.
package zoo
