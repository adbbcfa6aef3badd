# tandem_test() lines of tests over media and the frontend's half of it.
tandem_test(unit_media LABEL unit SRCS unit/media/image_size_test.cc unit/media/image_spec_test.cc
  DEPS media tests/support/files nlohmann_json::nlohmann_json)
tandem_test(golden_images LABEL golden SRCS golden/images_test.cc
  DEPS media tests/support/files nlohmann_json::nlohmann_json)
