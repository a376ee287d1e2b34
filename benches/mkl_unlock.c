/* Preloaded into PyTorch on processors that are not Intel's: MKL asks this function whether to take its AVX-512 code. */
int mkl_serv_intel_cpu_true(void) { return 1; }
