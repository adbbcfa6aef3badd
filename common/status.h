#pragma once

// Errors as values. Names and codes are those of absl::Status (our own type: Debian's Abseil is a
// C++14 build with a string_view of its own, and GCC 12 has no std::expected in C++20).
// Thread: values, no sharing. A message names what was wrong, the value, and what is allowed; it
// can reach an HTTP client, so it contains no addresses and no stack text.

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "common/check.h"

namespace tandem {

enum class StatusCode : int {
  kOk = 0,
  kCancelled = 1,
  kUnknown = 2,
  kInvalidArgument = 3,
  kDeadlineExceeded = 4,
  kNotFound = 5,
  kAlreadyExists = 6,
  kPermissionDenied = 7,
  kResourceExhausted = 8,
  kFailedPrecondition = 9,
  kAborted = 10,
  kOutOfRange = 11,
  kUnimplemented = 12,
  kInternal = 13,
  kUnavailable = 14,
  kDataLoss = 15,
  kUnauthenticated = 16,
};

std::string_view StatusCodeName(StatusCode code);

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }
  std::string ToString() const;  // "INVALID_ARGUMENT: top_p is 2, must be in (0, 1]"

  // Prefixes the message with the place or file it happened in: "config.json: ...".
  Status WithContext(std::string_view context) const;

  // The request field at fault, for the API's `param`; empty when none.
  const std::string& param() const { return param_; }
  Status WithParam(std::string param) && {
    param_ = std::move(param);
    return std::move(*this);
  }

  friend bool operator==(const Status&, const Status&) = default;

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
  std::string param_;
};

inline Status OkStatus() { return Status(); }
Status InvalidArgumentError(std::string message);
Status NotFoundError(std::string message);
Status AlreadyExistsError(std::string message);
Status ResourceExhaustedError(std::string message);
Status FailedPreconditionError(std::string message);
Status UnimplementedError(std::string message);
Status InternalError(std::string message);
Status UnavailableError(std::string message);
Status DataLossError(std::string message);
Status CancelledError(std::string message);
Status AbortedError(std::string message);
// "open /path: No such file or directory", code from errno.
Status ErrnoError(int error_number, std::string_view what);

// A T, or the Status that explains why there is none. REQUIRES ok() for value(), * and ->.
template <class T>
class [[nodiscard]] StatusOr {
 public:
  StatusOr(Status status) : status_(std::move(status)) {  // NOLINT(google-explicit-constructor)
    CHECK(!status_.ok()) << "StatusOr from an OK status";
  }
  StatusOr(T value) : value_(std::move(value)) {}  // NOLINT(google-explicit-constructor)

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }

  T& value() & {
    CHECK(ok()) << status_.ToString();
    return *value_;
  }
  const T& value() const& {
    CHECK(ok()) << status_.ToString();
    return *value_;
  }
  T&& value() && {
    CHECK(ok()) << status_.ToString();
    return std::move(*value_);
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  Status status_;
  std::optional<T> value_;
};

#define TANDEM_CONCAT_INNER(a, b) a##b
#define TANDEM_CONCAT(a, b) TANDEM_CONCAT_INNER(a, b)

#define RETURN_IF_ERROR(expr)                                        \
  do {                                                               \
    ::tandem::Status return_if_error_status = (expr);                \
    if (!return_if_error_status.ok()) return return_if_error_status; \
  } while (false)

#define CO_RETURN_IF_ERROR(expr)                                        \
  do {                                                                  \
    ::tandem::Status return_if_error_status = (expr);                   \
    if (!return_if_error_status.ok()) co_return return_if_error_status; \
  } while (false)

// ASSIGN_OR_RETURN(auto x, ReadX());  declares or assigns the left side.
#define ASSIGN_OR_RETURN(lhs, expr) \
  TANDEM_ASSIGN_OR_RETURN(TANDEM_CONCAT(status_or_, __LINE__), lhs, expr, return )
#define CO_ASSIGN_OR_RETURN(lhs, expr) \
  TANDEM_ASSIGN_OR_RETURN(TANDEM_CONCAT(status_or_, __LINE__), lhs, expr, co_return )
#define TANDEM_ASSIGN_OR_RETURN(tmp, lhs, expr, ret) \
  auto tmp = (expr);                                 \
  if (!tmp.ok()) ret tmp.status();                   \
  lhs = std::move(tmp).value()

}  // namespace tandem
