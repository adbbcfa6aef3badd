# tandem_test() lines of tests over media and the frontend's half of it.
tandem_library(webpmux webp/mux.h webpmux)
module(tests/support/images SRCS encode_image.cc DEPS common
  PRIVATE_DEPS PNG::PNG JPEG::JPEG webp::webp webpmux::webpmux)
tandem_test(unit_media LABEL unit
  SRCS unit/media/image_size_test.cc unit/media/image_spec_test.cc unit/media/protocol_test.cc
       unit/media/decoder/decode_image_test.cc unit/media/decoder/exif_test.cc
       unit/media/decoder/resize_test.cc unit/media/decoder/tower_pixels_test.cc
  DEPS media media/decoder tests/support/files tests/support/images nlohmann_json::nlohmann_json)
tandem_test(golden_images LABEL golden SRCS golden/images_test.cc
  DEPS media media/decoder tests/support/files nlohmann_json::nlohmann_json OpenSSL::Crypto)

# tandem-media whose decoder fails on request.
add_executable(faulty-media support/faulty_media.cc)
set_target_properties(faulty-media PROPERTIES OUTPUT_NAME tandem-media
  RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin/faulty)
target_link_libraries(faulty-media PRIVATE tandem_media_decoder)
tandem_test(unit_image_service LABEL unit SRCS unit/frontend/media/image_service_test.cc
  DEPS frontend/media frontend/net media/decoder tests/support/images)
add_dependencies(unit_image_service tandem-media faulty-media)
