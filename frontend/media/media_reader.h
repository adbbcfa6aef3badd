#pragma once

// The bytes that a URL of a client stands for: data: URLs, http(s) URLs of allowed domains, and
// files below an allowed folder. Nothing is looked at but how many bytes there are.
// Thread: any; Read blocks, so not a shard's. Owns the certificates it trusts.
// Failure: INVALID_ARGUMENT: not a URL that may be read here, or too large; DATA_LOSS: it may be,
// but its bytes cannot be had; CANCELLED.

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/net/client_stream.h"
#include "common/status.h"
#include "frontend/web/web_url.h"

namespace tandem {

struct MediaAccess {
  std::vector<std::string> domains;  // hosts, as URLs name them; none: no URL is fetched
  std::string local_path;            // folder; "": no file is read
  bool follows_redirects = false;    // to allowed domains
  bool public_addresses_only = true;
  double fetch_timeout_s = 5;      // of one URL with its redirects, without looking names up
  int64_t max_bytes = 64ll << 20;  // of one image
};

class MediaReader {
 public:
  // INVALID_ARGUMENT: a domain is no host, the folder is none, or the system's certificates cannot
  // be read.
  static StatusOr<std::unique_ptr<MediaReader>> Make(MediaAccess access);

  // Ends what Read waits for, now and later. Any thread.
  void Stop() { is_stopped_ = true; }

  // is_cancelled: asked again and again; its answer ends a wait.
  StatusOr<std::string> Read(std::string_view url, std::function<bool()> is_cancelled) const;

  static bool IsDataUrl(std::string_view url);

 private:
  explicit MediaReader(MediaAccess access) : access_(std::move(access)) {}
  Status CheckDomain(const WebUrl& url) const;
  StatusOr<std::string> ReadData(std::string_view url) const;
  StatusOr<std::string> Fetch(std::string_view url,
                              const std::function<bool()>& is_cancelled) const;
  StatusOr<std::string> ReadFile(std::string_view url) const;
  Status TooLarge() const;

  MediaAccess access_;
  std::string local_path_;  // without links; "": none
  std::unique_ptr<TlsTrust> trust_;
  std::atomic<bool> is_stopped_ = false;
};

}  // namespace tandem
