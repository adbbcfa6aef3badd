# tandem_test() lines of tests over pooling and what goes over the wire for it.
tandem_test(unit_pooling LABEL unit
  SRCS unit/pooling/pooler_config_test.cc unit/pooling/pooling_params_test.cc
  DEPS pooling proto_msgpack frontend/api tests/support/files)
