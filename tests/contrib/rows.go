package contrib

// Rows lists the operators.
var Rows = []Row{
	{Kind: Domain + ":BiasGelu", Cases: biasGelu, Rel: 1e-5, Abs: 1e-6},
	{Kind: Domain + ":FastGelu", Cases: fastGelu, Rel: 1e-5, Abs: 1e-6},
	{Kind: Domain + ":Gelu", Cases: gelu, Rel: 1e-5, Abs: 1e-6},
	{Kind: Domain + ":QuickGelu", Cases: quickGelu, Rel: 1e-5, Abs: 1e-6},
	{Kind: Domain + ":FusedMatMul", Cases: fusedMatMul, Rel: 1e-5, Abs: 1e-5},
}
