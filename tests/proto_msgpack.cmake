# tandem_test() lines of tests over proto_msgpack.
