#include "common/mapped_file.h"

#include <sys/stat.h>

#include "tests/support/files/temp_folder.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

TEST_CASE("MappedFile: what is no file is refused, and a pipe's other end is not waited for") {
  const TempFolder folder;
  const std::string pipe = folder.PathOf("pipe");
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  for (const std::string& path : {pipe, folder.path(), std::string("/dev/zero")}) {
    CHECK(MappedFile::Open(path).status().message() == path + ": not a regular file");
  }
}

}  // namespace
}  // namespace tandem
