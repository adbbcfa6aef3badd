#pragma once

// Sends prepared requests to one server when they are due and keeps the outcomes. One network
// thread carries all streams; connections are reused, across runs too.
// Thread: Run, Fetch and Get from the one that made the object, which they block. Units: seconds.
// Failure: a request's failure is in its outcome. A reused connection that the server closed
// without sending anything is replaced once; nothing else is retried.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/status.h"
#include "deploy/cli/bench/serve_metrics.h"
#include "deploy/cli/bench/server_url.h"

namespace tandem {

struct LoadTarget {
  ServerUrl url;
  bool insecure = false;
  std::vector<std::string> header_lines;  // "Name: value", without line ends
};

struct LoadRequest {
  double due = 0;     // after the beginning of the run
  std::string bytes;  // the whole HTTP request; see PostBytes
  int64_t prompt_tokens = 0;
};

struct LoadPlan {
  std::vector<LoadRequest> requests;       // by `due`, ascending
  std::optional<int64_t> max_concurrency;  // the others wait
  double request_timeout_s = 6 * 3600;
  // Called a few times a second on the network thread, and at the end.
  std::function<void(size_t num_done, size_t num_failed)> on_progress;
};

struct LoadRun {
  std::vector<RequestOutcome> outcomes;  // in the order of the requests
  double duration = 0;
  double cpu_s = 0;  // of the network thread
};

struct LoadReply {
  int status_code = 0;
  std::string body;
};

// Requests of which the whole responses count.
struct FetchPlan {
  size_t num_requests = 0;
  size_t max_concurrency = 1;
  // These run on the network thread.
  std::function<std::string(size_t index)> bytes;  // see PostBytes
  // Whether the request may be sent yet; looked at again after each reply.
  std::function<bool(size_t index)> may_start;
  // In the order in which responses end. An error ends the run.
  std::function<Status(size_t index, LoadReply reply)> on_reply;
};

class LoadClient {
 public:
  // Resolves the server's name; does not connect yet.
  static StatusOr<std::unique_ptr<LoadClient>> Start(LoadTarget target);
  ~LoadClient();

  // The bytes of a POST of JSON with the target's headers; `extra_header` is one line or empty.
  std::string PostBytes(const std::string& path, const std::string& json,
                        const std::string& extra_header) const;

  LoadRun Run(LoadPlan plan);
  // Sends all requests in their order. Ends with the first failure of the connection or of
  // on_reply, after the requests under way.
  Status Fetch(FetchPlan plan);
  // A small page: /v1/models, /metrics.
  StatusOr<LoadReply> Get(const std::string& path, double timeout_s);

 private:
  struct State;
  explicit LoadClient(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace tandem
