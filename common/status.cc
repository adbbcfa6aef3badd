#include "common/status.h"

#include <cerrno>
#include <cstring>

namespace tandem {

std::string_view StatusCodeName(StatusCode code) {
  switch (code) {
    case StatusCode::kOk:
      return "OK";
    case StatusCode::kCancelled:
      return "CANCELLED";
    case StatusCode::kUnknown:
      return "UNKNOWN";
    case StatusCode::kInvalidArgument:
      return "INVALID_ARGUMENT";
    case StatusCode::kDeadlineExceeded:
      return "DEADLINE_EXCEEDED";
    case StatusCode::kNotFound:
      return "NOT_FOUND";
    case StatusCode::kAlreadyExists:
      return "ALREADY_EXISTS";
    case StatusCode::kPermissionDenied:
      return "PERMISSION_DENIED";
    case StatusCode::kResourceExhausted:
      return "RESOURCE_EXHAUSTED";
    case StatusCode::kFailedPrecondition:
      return "FAILED_PRECONDITION";
    case StatusCode::kAborted:
      return "ABORTED";
    case StatusCode::kOutOfRange:
      return "OUT_OF_RANGE";
    case StatusCode::kUnimplemented:
      return "UNIMPLEMENTED";
    case StatusCode::kInternal:
      return "INTERNAL";
    case StatusCode::kUnavailable:
      return "UNAVAILABLE";
    case StatusCode::kDataLoss:
      return "DATA_LOSS";
    case StatusCode::kUnauthenticated:
      return "UNAUTHENTICATED";
  }
  return "UNKNOWN";
}

std::string Status::ToString() const {
  if (ok()) return "OK";
  std::string text(StatusCodeName(code_));
  text += ": ";
  text += message_;
  return text;
}

Status Status::WithContext(std::string_view context) const {
  if (ok()) return *this;
  Status status = *this;
  status.message_ = std::string(context) + ": " + message_;
  return status;
}

#define TANDEM_STATUS_MAKER(Name)                           \
  Status Name##Error(std::string message) {                 \
    return Status(StatusCode::k##Name, std::move(message)); \
  }
TANDEM_STATUS_MAKER(InvalidArgument)
TANDEM_STATUS_MAKER(NotFound)
TANDEM_STATUS_MAKER(AlreadyExists)
TANDEM_STATUS_MAKER(ResourceExhausted)
TANDEM_STATUS_MAKER(FailedPrecondition)
TANDEM_STATUS_MAKER(Unimplemented)
TANDEM_STATUS_MAKER(Internal)
TANDEM_STATUS_MAKER(Unavailable)
TANDEM_STATUS_MAKER(DataLoss)
TANDEM_STATUS_MAKER(Cancelled)
TANDEM_STATUS_MAKER(Aborted)
#undef TANDEM_STATUS_MAKER

Status ErrnoError(int error_number, std::string_view what) {
  StatusCode code = StatusCode::kInternal;
  switch (error_number) {
    case ENOENT:
      code = StatusCode::kNotFound;
      break;
    case EACCES:
    case EPERM:
      code = StatusCode::kPermissionDenied;
      break;
    case EEXIST:
    case EADDRINUSE:
      code = StatusCode::kAlreadyExists;
      break;
    case ENOMEM:
    case ENOSPC:
    case EMFILE:
    case ENFILE:
      code = StatusCode::kResourceExhausted;
      break;
    case EAGAIN:
    case ECONNREFUSED:
    case ECONNRESET:
    case EPIPE:
      code = StatusCode::kUnavailable;
      break;
    case EINVAL:
      code = StatusCode::kInvalidArgument;
      break;
    default:
      break;
  }
  return Status(code, std::string(what) + ": " + std::strerror(error_number));
}

}  // namespace tandem
