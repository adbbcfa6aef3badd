#include "frontend/media/media_reader.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "common/clock.h"
#include "common/shorten.h"
#include "common/strings.h"
#include "common/unique_fd.h"
#include "frontend/media/public_address.h"
#include "frontend/text/base64.h"
#include "frontend/web/web_get.h"

namespace tandem {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kDataScheme = "data:";
constexpr std::string_view kFileScheme = "file:";
constexpr int kMaxRedirects = 5;
// Whether anybody still waits is looked at so often.
constexpr double kLongestWait = 0.1;

bool HasScheme(std::string_view url, std::string_view scheme) {
  return ToLower(url.substr(0, scheme.size())) == scheme;
}

SocketWait WaitUntil(double deadline, const std::function<bool()>& is_cancelled) {
  return [deadline, &is_cancelled](int fd, int16_t events) -> Status {
    while (true) {
      if (is_cancelled()) return CancelledError("nobody waits for it any more");
      const double left = deadline - SystemClock().Monotonic();
      if (left <= 0) return Status(StatusCode::kDeadlineExceeded, "it takes too long");
      pollfd ready = {.fd = fd, .events = events, .revents = 0};
      const int count = poll(&ready, 1, 1 + static_cast<int>(std::min(left, kLongestWait) * 1e3));
      if (count > 0) return OkStatus();
      if (count < 0 && errno != EINTR) return UnavailableError(std::strerror(errno));
    }
  };
}

Status Unreadable(const std::string& what) {
  return DataLossError("Failed to fetch media from URL: " + what);
}

// A name, or an address without brackets.
bool IsHost(std::string_view text) {
  const bool is_v6 = text.find("::") != text.npos || std::ranges::count(text, ':') > 1;
  return !text.empty() && std::ranges::all_of(text, [is_v6](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '-' || c == '_' ||
           (c == ':' && is_v6);
  });
}

bool IsBelow(const std::string& path, const std::string& folder) {
  const std::string prefix = folder.ends_with('/') ? folder : folder + '/';
  return path.size() > prefix.size() && path.starts_with(prefix);
}

// Where an open file really lies, whatever links led to it.
std::string PathOf(int fd) {
  std::string path(4096, '\0');
  const ssize_t size =
      readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), path.data(), path.size());
  path.resize(size < 0 ? 0 : static_cast<size_t>(size));
  return path;
}

}  // namespace

StatusOr<std::unique_ptr<MediaReader>> MediaReader::Make(MediaAccess access) {
  for (std::string& domain : access.domains) {
    if (!IsHost(domain)) {
      return InvalidArgumentError("--allowed-media-domains " + domain +
                                  ": must be a host, without scheme, port and path");
    }
    domain = ToLower(domain);
  }
  std::unique_ptr<MediaReader> reader(new MediaReader(std::move(access)));
  if (!reader->access_.local_path.empty()) {
    std::error_code error;
    const fs::path path = fs::canonical(reader->access_.local_path, error);
    if (error || !fs::is_directory(path, error)) {
      return InvalidArgumentError("--allowed-local-media-path " + reader->access_.local_path +
                                  ": no such folder");
    }
    reader->local_path_ = path.string();
  }
  if (!reader->access_.domains.empty()) {
    ASSIGN_OR_RETURN(reader->trust_, TlsTrust::Load(""));
  }
  return reader;
}

bool MediaReader::IsDataUrl(std::string_view url) { return HasScheme(url, kDataScheme); }

StatusOr<std::string> MediaReader::Read(std::string_view url,
                                        std::function<bool()> is_cancelled) const {
  is_cancelled = [this, asked = std::move(is_cancelled)] { return is_stopped_ || asked(); };
  if (is_cancelled()) return CancelledError("nobody waits for it any more");
  if (IsDataUrl(url)) return ReadData(url.substr(kDataScheme.size()));
  if (HasScheme(url, kFileScheme)) return ReadFile(url.substr(kFileScheme.size()));
  if (HasScheme(url, "http:") || HasScheme(url, "https:")) return Fetch(url, is_cancelled);
  return InvalidArgumentError("The URL must be either a HTTP, data or file URL.");
}

Status MediaReader::TooLarge() const {
  return InvalidArgumentError("an image may have at most " + std::to_string(access_.max_bytes) +
                              " bytes (--max-image-bytes)");
}

// [<media type>][;<parameter>]*;base64,<data>. The media type is what a client believes; the
// decoder looks at the bytes.
StatusOr<std::string> MediaReader::ReadData(std::string_view url) const {
  const size_t comma = url.find(',');
  if (comma == url.npos) return InvalidArgumentError("Invalid data URL: missing ',' separator.");
  if (!ToLower(url.substr(0, comma)).ends_with(";base64")) {
    return InvalidArgumentError("Only base64 data URLs are supported for now.");
  }
  const std::string_view data = url.substr(comma + 1);
  if (std::cmp_greater(data.size() / 4 * 3, access_.max_bytes + 2)) return TooLarge();
  std::optional<std::string> bytes = Base64Decode(data);
  if (!bytes) return InvalidArgumentError("the data URL's data is not base64");
  if (std::cmp_greater(bytes->size(), access_.max_bytes)) return TooLarge();
  return *std::move(bytes);
}

Status MediaReader::CheckDomain(const WebUrl& url) const {
  if (access_.domains.empty()) {
    return InvalidArgumentError(
        "this server fetches no images: send a data: URL, or start it with "
        "--allowed-media-domains");
  }
  if (!url.user.empty()) return InvalidArgumentError("a URL of an image must not name a user");
  if (std::ranges::find(access_.domains, ToLower(url.host)) != access_.domains.end()) {
    return OkStatus();
  }
  std::string domains;
  for (const std::string& domain : access_.domains) {
    domains += (domains.empty() ? "'" : ", '") + domain + "'";
  }
  return InvalidArgumentError("The URL must be from one of the allowed domains: [" + domains +
                              "]. Input URL domain: " + Shorten(url.host));
}

StatusOr<std::string> MediaReader::Fetch(std::string_view text,
                                         const std::function<bool()>& is_cancelled) const {
  ASSIGN_OR_RETURN(const WebUrl url, ParseWebUrl(text));
  RETURN_IF_ERROR(CheckDomain(url));
  const SocketWait wait =
      WaitUntil(SystemClock().Monotonic() + access_.fetch_timeout_s, is_cancelled);
  WebAccess access = {.trust = trust_.get(), .connect_wait = wait, .wait = wait};
  // A proxy would look names up itself, out of reach of the check.
  access.uses_proxy = false;
  if (access_.public_addresses_only) access.check_address = CheckPublicAddress;
  access.check_url = [this](const WebUrl& next) { return CheckDomain(next); };
  access.max_redirects = access_.follows_redirects ? kMaxRedirects : 0;
  std::string bytes;
  bool is_large = false;
  const WebRequest request = {.url = url, .credentials = {}, .credentials_origin = {}};
  const auto reply = HttpGet(request, access, [&](const WebReply& head, std::string_view piece) {
    if (head.status != 200) return false;
    is_large = std::cmp_greater(bytes.size() + piece.size(), access_.max_bytes);
    if (!is_large) bytes += piece;
    return !is_large;
  });
  if (is_cancelled()) return CancelledError("nobody waits for it any more");
  if (is_large) return TooLarge();
  const StatusCode code = reply.status().code();
  if (code == StatusCode::kInvalidArgument || code == StatusCode::kFailedPrecondition) {
    return InvalidArgumentError(reply.status().message());
  }
  if (!reply.ok()) return Unreadable(reply.status().message());
  if (reply->status / 100 == 3) {
    return Unreadable(url.Origin() +
                      " redirects, which is not followed "
                      "(--media-url-allow-redirects)");
  }
  if (reply->status != 200) return Unreadable("HTTP " + std::to_string(reply->status) + " error");
  if (reply->was_cut) return Unreadable("the response is cut, or takes too long");
  return bytes;
}

// "//host/path" or "/path". The name is judged before anything is opened, so that nobody learns
// which other files there are; then the open file is, because links may lead elsewhere.
StatusOr<std::string> MediaReader::ReadFile(std::string_view url) const {
  if (local_path_.empty()) {
    return InvalidArgumentError("Cannot load local files without `--allowed-local-media-path`.");
  }
  if (url.starts_with("//")) url.remove_prefix(2);
  if (url.starts_with("localhost/")) url.remove_prefix(std::strlen("localhost"));
  const std::string path =
      fs::path(PercentDecode(url.substr(0, url.find_first_of("?#")))).lexically_normal().string();
  const Status refused = InvalidArgumentError("The file path " + Shorten(path) +
                                              " must be a subpath of `--allowed-local-media-path " +
                                              access_.local_path + "`.");
  const std::string given = fs::path(access_.local_path).lexically_normal().string();
  if (path.find('\0') != path.npos || !(IsBelow(path, given) || IsBelow(path, local_path_))) {
    return refused;
  }
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  struct stat facts {};
  if (!fd || fstat(fd.get(), &facts) != 0) return DataLossError(Shorten(path) + ": cannot be read");
  if (!IsBelow(PathOf(fd.get()), local_path_)) return refused;
  if (!S_ISREG(facts.st_mode)) return DataLossError(path + ": is not a file");
  if (facts.st_size > access_.max_bytes) return TooLarge();
  std::string bytes(static_cast<size_t>(facts.st_size), '\0');
  size_t size = 0;
  while (size < bytes.size()) {
    const ssize_t count = read(fd.get(), bytes.data() + size, bytes.size() - size);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return DataLossError(path + ": " + std::strerror(errno));
    if (count == 0) break;
    size += static_cast<size_t>(count);
  }
  bytes.resize(size);
  return bytes;
}

}  // namespace tandem
