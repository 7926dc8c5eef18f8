package cpu

// binders lists the operators that have kernels of their own.
var binders = map[string]binder{}
