module(tests/support/gzip SRCS gzip_lines.cc DEPS common ZLIB::ZLIB nlohmann_json::nlohmann_json)
tandem_test(unit_common LABEL unit SRCS unit/common/status_test.cc unit/common/flags_test.cc unit/common/flag_json_test.cc unit/common/strings_test.cc unit/common/thread_room_test.cc unit/common/thread_states_test.cc
  unit/common/crc32c_test.cc unit/common/forking/forked_jobs_test.cc unit/common/log_test.cc unit/common/log_writer_test.cc unit/common/mapped_file_test.cc unit/common/random_test.cc unit/common/broadcast_ring_test.cc unit/common/mailbox_test.cc unit/common/packed_bytes_test.cc unit/common/packets_test.cc unit/common/read_file_test.cc unit/common/runtime_folder_test.cc unit/common/sd_notify_test.cc unit/common/shorten_test.cc unit/common/unix_address_test.cc DEPS common common/forking tests/support/files tests/support nlohmann_json::nlohmann_json)

# What the tests of forked jobs start.
add_executable(forking-jobs support/forking_jobs.cc)
set_target_properties(forking-jobs PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin/faulty)
target_link_libraries(forking-jobs PRIVATE tandem_common_forking)
add_dependencies(unit_common forking-jobs)
