#include "deploy/cli/hub/hub_client.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <optional>
#include <thread>
#include <utility>

#include "common/strings.h"

namespace tandem {
namespace {

constexpr int kMaxTries = 6;  // in a row, without progress
constexpr size_t kProgressBytes = 64 << 10;
constexpr double kFirstPauseSeconds = 0.25;
constexpr double kMaxPauseSeconds = 300;
constexpr int kOk = 200, kPartialContent = 206;

// Counts tries in a row and waits between them.
class Patience {
 public:
  explicit Patience(const std::string& what) : what_(what) {}
  // Few bytes a try are no progress: a file would take for ever.
  void Received(size_t count) {
    received_ += count;
    if (received_ < kProgressBytes) return;
    tries_ = 0;
    received_ = 0;
  }

  // Waits before the next try; returns `reason` when there is none.
  Status Wait(const Status& reason, double at_least_s) {
    if (at_least_s > kMaxPauseSeconds) {
      return Status(reason.code(), reason.message() + " and asks to wait " +
                                       WithCommas(static_cast<int64_t>(at_least_s)) + " s");
    }
    if (++tries_ >= kMaxTries) return reason;
    const double pause = std::max(at_least_s, kFirstPauseSeconds * (1 << (tries_ - 1)));
    const bool is_named = reason.message().starts_with(what_);
    std::fprintf(stderr, "%s%s; trying again in %.3g s\n", is_named ? "" : (what_ + ": ").c_str(),
                 reason.message().c_str(), pause);
    std::this_thread::sleep_for(std::chrono::duration<double>(pause));
    return OkStatus();
  }

 private:
  const std::string what_;
  int tries_ = 0;
  size_t received_ = 0;
};

bool IsTransient(int status) { return status == 408 || status == 429 || status >= 500; }

// Seconds that the response asks to wait: Retry-After, or the "t=" of a RateLimit header.
double PauseOf(const WebReply& reply) {
  if (const auto seconds = ParseNumber<int>(reply.Header("retry-after"))) {
    return std::max(*seconds, 0);
  }
  const std::string limit = reply.Header("ratelimit");
  const size_t at = limit.find("t=");
  if (reply.status != 429 || at == limit.npos) return 0;
  const size_t end = std::min(limit.find_first_not_of("0123456789", at + 2), limit.size());
  return ParseNumber<int>(std::string_view(limit).substr(at + 2, end - at - 2)).value_or(0);
}

// Of "bytes 5-9/10": the first and the size.
std::optional<std::pair<int64_t, int64_t>> ParseContentRange(std::string_view text) {
  const size_t dash = text.find('-'), slash = text.find('/');
  if (!text.starts_with("bytes ") || dash == text.npos || slash == text.npos || dash < 6) {
    return std::nullopt;
  }
  const auto first = ParseNumber<int64_t>(text.substr(6, dash - 6));
  const auto size = ParseNumber<int64_t>(text.substr(slash + 1));
  if (!first || !size) return std::nullopt;
  return std::pair(*first, *size);
}

// The target of `<url>; rel="next"`, which must be of the same server.
StatusOr<std::string> NextPage(const WebReply& reply) {
  const std::string link = reply.Header("link");
  const size_t end = link.find('>');
  if (link.find("rel=\"next\"") == link.npos || !link.starts_with('<') || end == link.npos) {
    return std::string();
  }
  ASSIGN_OR_RETURN(const WebUrl url,
                   ResolveLocation(reply.url, std::string_view(link).substr(1, end - 1)));
  if (url.Origin() != reply.url.Origin()) {
    return DataLossError("the list's next page is on another server, " + url.Origin());
  }
  return url.target;
}

}  // namespace

StatusOr<std::unique_ptr<HubClient>> HubClient::Create(HubSettings settings) {
  std::unique_ptr<HubClient> client(new HubClient(std::move(settings)));
  ASSIGN_OR_RETURN(client->trust_, TlsTrust::Load(""));
  return client;
}

WebRequest HubClient::RequestFor(const std::string& target) const {
  WebRequest request = {.url = settings_.endpoint, .credentials = {}, .credentials_origin = {}};
  request.url.target = target;
  if (!settings_.token.empty()) {
    request.credentials = "Authorization: Bearer " + settings_.token;
    if (settings_.is_model_scope) {
      request.credentials += "\r\nCookie: m_session_id=" + settings_.token;
    }
    request.credentials_origin = settings_.endpoint.Origin();
  }
  return request;
}

Status HubClient::ErrorOf(const WebReply& reply, const std::string& what) const {
  const std::string host = settings_.endpoint.Origin();
  const std::string variable = settings_.is_model_scope ? "MODELSCOPE_API_TOKEN" : "HF_TOKEN";
  const std::string code = reply.Header("x-error-code");
  if (code == "GatedRepo") {
    return Status(StatusCode::kPermissionDenied,
                  what + " is gated: accept its conditions on its page at " + host + " and set " +
                      variable + " to a token of that account");
  }
  if (code == "RevisionNotFound") return NotFoundError(what + ": there is no such revision");
  switch (reply.status) {
    case 401:
      return Status(StatusCode::kUnauthenticated,
                    settings_.token.empty() ? what + " does not exist at " + host +
                                                  ", or is private: check the name, "
                                                  "or set " +
                                                  variable
                                            : what + ": " + host + " does not accept the token (" +
                                                  variable + "), or there is no such model");
    case 403:
      return Status(
          StatusCode::kPermissionDenied,
          what + ": " + host + " refuses access" +
              (settings_.token.empty() ? "; set " + variable + " to a token that may read it"
                                       : "; the token (" + variable + ") may not read it"));
    case 404:
      return NotFoundError(what + " does not exist at " + host);
    default: {
      std::string text =
          what + ": " + host + " responds with status " + std::to_string(reply.status);
      return IsTransient(reply.status) ? UnavailableError(text) : FailedPreconditionError(text);
    }
  }
}

StatusOr<HubText> HubClient::GetText(const std::string& target, const std::string& what,
                                     size_t max_bytes) const {
  const WebRequest request = RequestFor(target);
  const WebAccess access = {.trust = trust_.get(), .wait = SilenceWait(settings_.silence_s)};
  Patience patience(what);
  while (true) {
    HubText text;
    bool is_large = false;
    const StatusOr<WebReply> reply =
        HttpGet(request, access, [&](const WebReply&, std::string_view piece) {
          is_large = text.body.size() + piece.size() > max_bytes;
          if (!is_large) text.body += piece;
          return !is_large;
        });
    if (!reply.ok() && reply.status().code() != StatusCode::kUnavailable) return reply.status();
    if (is_large) {
      return DataLossError(what + ": the hub's response is larger than " +
                           WithCommas(static_cast<int64_t>(max_bytes)) + " bytes");
    }
    if (reply.ok() && reply->status == kOk && !reply->was_cut) {
      ASSIGN_OR_RETURN(text.next_page, NextPage(*reply));
      return text;
    }
    if (reply.ok() && reply->status != kOk && !IsTransient(reply->status)) {
      return ErrorOf(*reply, what);
    }
    const Status reason = !reply.ok()      ? reply.status()
                          : reply->was_cut ? UnavailableError("the connection was cut")
                                           : ErrorOf(*reply, what);
    RETURN_IF_ERROR(patience.Wait(reason, reply.ok() ? PauseOf(*reply) : 0));
  }
}

Status HubClient::GetRange(const std::string& target, const std::string& what, int64_t size,
                           int64_t begin, int64_t end, bool* is_whole,
                           const std::function<Status(std::string_view)>& on_bytes) const {
  WebRequest request = RequestFor(target);
  const WebAccess access = {.trust = trust_.get(), .wait = SilenceWait(settings_.silence_s)};
  Patience patience(what);
  int64_t at = begin;
  while (at < end) {
    if (at > 0 || end < size) request.range = {at, end};
    Status refused;
    int64_t stop = end;
    bool is_first = true;
    // Whether the response is the range that was asked for; looked at with its first bytes.
    const auto check = [&](const WebReply& head) -> Status {
      if (head.status == kPartialContent) {
        const auto range = ParseContentRange(head.Header("content-range"));
        if (range && range->first == at && range->second == size) return OkStatus();
        return DataLossError(what + ": the hub sends '" + head.Header("content-range") +
                             "' of a file of " + WithCommas(size) + " bytes");
      }
      const auto length = ParseNumber<int64_t>(head.Header("content-length"));
      if (length && *length != size) {
        return DataLossError(what + ": the hub sends " + WithCommas(*length) +
                             " bytes of a file of " + WithCommas(size));
      }
      *is_whole = request.range.has_value();
      stop = size;
      return at == 0 ? OkStatus() : CancelledError("no ranges");
    };
    const StatusOr<WebReply> reply =
        HttpGet(request, access, [&](const WebReply& head, std::string_view piece) {
          if (head.status != kOk && head.status != kPartialContent) return false;
          if (std::exchange(is_first, false)) refused = check(head);
          if (refused.ok() && std::cmp_greater(piece.size(), stop - at)) {
            refused = DataLossError(what + ": the hub sends more bytes than the file has");
          }
          if (refused.ok()) refused = on_bytes(piece);
          if (!refused.ok()) return false;
          at += static_cast<int64_t>(piece.size());
          patience.Received(piece.size());
          return true;
        });
    if (refused.code() == StatusCode::kCancelled) return OkStatus();
    RETURN_IF_ERROR(refused);
    if (at >= end) break;
    if (!reply.ok() && reply.status().code() != StatusCode::kUnavailable) return reply.status();
    const bool is_good = reply.ok() && (reply->status == kOk || reply->status == kPartialContent);
    if (reply.ok() && !is_good && !IsTransient(reply->status)) return ErrorOf(*reply, what);
    const Status reason = !reply.ok() ? reply.status()
                          : is_good   ? UnavailableError("the connection was cut")
                                      : ErrorOf(*reply, what);
    RETURN_IF_ERROR(patience.Wait(reason, reply.ok() ? PauseOf(*reply) : 0));
  }
  return OkStatus();
}

}  // namespace tandem
