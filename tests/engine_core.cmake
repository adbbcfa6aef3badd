# tandem_test() lines of tests over engine_core.
