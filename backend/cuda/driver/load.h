// load opens NVIDIA's driver and initialises it, once. It returns a CUresult; before, or
// where the driver is missing, every call of the driver but cuInit fails with
// CUDA_ERROR_NOT_INITIALIZED. *why is a message of the dynamic linker, or null.
int spc_load(const char **why);
