# tandem_test() lines of tests over kernels.
tandem_test(unit_kernels LABEL unit
  SRCS unit/kernels/tensor_test.cc unit/kernels/reference_test.cc DEPS kernels)
