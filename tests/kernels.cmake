# tandem_test() lines of tests over kernels.
