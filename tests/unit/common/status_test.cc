#include "common/status.h"

#include <cerrno>

#include <catch2/catch.hpp>

namespace tandem {
namespace {

StatusOr<int> Half(int x) {
  if (x % 2 != 0) return InvalidArgumentError("x is odd").WithContext("Half");
  return x / 2;
}

StatusOr<int> Quarter(int x) {
  ASSIGN_OR_RETURN(const int half, Half(x));
  return Half(half);
}

TEST_CASE("Status keeps code, message and param") {
  const Status status = InvalidArgumentError("top_p is 2").WithParam("top_p");
  CHECK_FALSE(status.ok());
  CHECK(status.code() == StatusCode::kInvalidArgument);
  CHECK(status.param() == "top_p");
  CHECK(status.ToString() == "INVALID_ARGUMENT: top_p is 2");
  CHECK(OkStatus().ToString() == "OK");
}

TEST_CASE("StatusOr holds a value or an error, also through ASSIGN_OR_RETURN") {
  CHECK(*Quarter(8) == 2);
  const StatusOr<int> bad = Quarter(6);
  CHECK_FALSE(bad.ok());
  CHECK(bad.status().message() == "Half: x is odd");
}

TEST_CASE("ErrnoError names what failed and maps the code") {
  const Status status = ErrnoError(ENOENT, "open /nowhere");
  CHECK(status.code() == StatusCode::kNotFound);
  CHECK(status.message() == "open /nowhere: No such file or directory");
}

}  // namespace
}  // namespace tandem
