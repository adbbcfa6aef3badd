# tandem_test() lines of tests over kernels.
module(tests/support/kernels DEPS kernels)
tandem_test(unit_kernels LABEL unit
  SRCS unit/kernels/tensor_test.cc unit/kernels/reference_test.cc DEPS kernels)
tandem_test(property_kernels LABEL property
  SRCS property/kernels_test.cc property/kernels_invariance_test.cc property/compute_pool_test.cc
  DEPS kernels tests/support/kernels)
