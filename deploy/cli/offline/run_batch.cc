#include "deploy/cli/offline/run_batch.h"

#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <utility>

#include "common/exit_status.h"
#include "common/log.h"
#include "common/read_file.h"
#include "deploy/cli/bench/load_client.h"
#include "deploy/cli/bench/progress_bar.h"
#include "deploy/cli/offline/batch_file.h"
#include "deploy/cli/offline/private_server.h"
#include "deploy/cli/report_failure.h"

namespace tandem {
namespace {

constexpr std::string_view kCommand = "run-batch";
constexpr int64_t kMaxFileBytes = int64_t{16} << 30;
// Results wait for those before them; at most this many times max-inflight.
constexpr size_t kMaxAhead = 16;

struct BatchConfig {
  std::string input;
  std::string output;
  int64_t max_inflight = 1024;
  std::string output_tmp_dir;
  bool enable_metrics = false;
};

std::vector<Flag> BatchFlags(BatchConfig& c) {
  return {
      {"input-file", &c.input, "JSON lines of requests", {.short_name = "i"}},
      {"output-file", &c.output, "Where their results go", {.short_name = "o"}},
      {"max-inflight", &c.max_inflight, "Requests under way at once", {.min = 1, .max = 65536}},
      {"output-tmp-dir", &c.output_tmp_dir, "No effect: results go straight to the output file"},
      {"enable-metrics", &c.enable_metrics, "No effect: the server has no network port"},
  };
}

Status CheckFiles(const BatchConfig& config) {
  for (const auto& [flag, path] : {std::pair("-i", config.input), std::pair("-o", config.output)}) {
    if (path.empty()) return InvalidArgumentError(std::string(flag) + " FILE is missing");
    if (path.starts_with("http://") || path.starts_with("https://")) {
      return InvalidArgumentError(std::string(flag) + " " + path +
                                  ": only files; no connection is opened to fetch or send one");
    }
  }
  std::error_code error;
  if (config.input == config.output ||
      std::filesystem::equivalent(config.input, config.output, error)) {
    return InvalidArgumentError("-i and -o are the same file");
  }
  return OkStatus();
}

// The output file, opened after its last whole line.
class BatchOutput {
 public:
  static StatusOr<BatchOutput> Open(const std::string& path) {
    BatchOutput output;
    ASSIGN_OR_RETURN(const std::string text, ReadFileIfAny(path, kMaxFileBytes));
    auto state = ReadBatchOutput(text);
    if (!state.ok()) return state.status().WithContext(path);
    output.state_ = *std::move(state);
    std::error_code error;
    if (static_cast<int64_t>(text.size()) > output.state_.num_whole_bytes) {
      std::filesystem::resize_file(path, static_cast<uintmax_t>(output.state_.num_whole_bytes),
                                   error);
    }
    output.path_ = path;
    output.file_.open(path, std::ios::binary | std::ios::app);
    if (error || !output.file_) return UnavailableError("cannot write " + path);
    return output;
  }

  bool Has(const std::string& custom_id) const { return state_.done.count(custom_id) != 0; }
  Status Write(const std::string& line) {
    file_ << line << std::flush;
    return file_ ? OkStatus() : UnavailableError("cannot write " + path_);
  }

 private:
  std::string path_;
  BatchOutputState state_;
  std::ofstream file_;
};

struct BatchCounts {
  size_t num_written = 0;
  size_t num_failed = 0;
};

// Turns replies, which come in any order, into lines in the order of the requests. On the network
// thread.
class OrderedResults {
 public:
  OrderedResults(const std::vector<BatchRequest>* requests, BatchOutput* output, ProgressBar* bar)
      : requests_(*requests), output_(*output), bar_(*bar) {}

  bool MayStart(size_t index, size_t max_inflight) const {
    return index < counts_.num_written + kMaxAhead * max_inflight;
  }

  Status Add(size_t index, const BatchReply& reply) {
    const BatchRequest& request = requests_[index];
    BatchLine line = BatchOutputLine(request, reply);
    if (line.is_error) ++counts_.num_failed;
    waiting_.emplace(index, std::move(line.text));
    for (auto it = waiting_.begin(); it != waiting_.end() && it->first == counts_.num_written;
         it = waiting_.erase(it)) {
      RETURN_IF_ERROR(output_.Write(it->second));
      ++counts_.num_written;
    }
    bar_.Show(counts_.num_written, counts_.num_failed);
    return OkStatus();
  }

  const BatchCounts& counts() const { return counts_; }

 private:
  const std::vector<BatchRequest>& requests_;
  BatchOutput& output_;
  ProgressBar& bar_;
  std::map<size_t, std::string> waiting_;
  BatchCounts counts_;
};

// Sends what is not refused and writes a line for each request.
Status SendAll(const std::vector<BatchRequest>& requests, const BatchConfig& config,
               const PrivateServerConfig& server_config, OrderedResults* results) {
  std::vector<size_t> sent;
  for (size_t i = 0; i < requests.size(); ++i) {
    if (requests[i].refusal.empty()) {
      sent.push_back(i);
    } else {
      RETURN_IF_ERROR(results->Add(i, {}));
    }
  }
  if (sent.empty()) return OkStatus();
  ASSIGN_OR_RETURN(const auto server, StartPrivateServer(server_config));
  LoadTarget target;
  ASSIGN_OR_RETURN(target.url, ParseServerUrl(server->base_url()));
  if (!server_config.api_key.empty()) {
    target.header_lines.push_back("Authorization: Bearer " + server_config.api_key);
  }
  ASSIGN_OR_RETURN(const auto client, LoadClient::Start(std::move(target)));
  FetchPlan plan;
  plan.num_requests = sent.size();
  plan.max_concurrency = static_cast<size_t>(config.max_inflight);
  plan.bytes = [&](size_t i) {
    return client->PostBytes(requests[sent[i]].url, requests[sent[i]].body, "");
  };
  plan.may_start = [&](size_t i) { return results->MayStart(sent[i], plan.max_concurrency); };
  plan.on_reply = [&](size_t i, LoadReply reply) -> Status {
    if (server->is_ending()) return UnavailableError("a signal has ended the run");
    return results->Add(sent[i], {reply.status_code, std::move(reply.body)});
  };
  Status status = client->Fetch(plan);
  if (status.ok()) return status;
  return UnavailableError(status.message() + "\n" + server->LogTail());
}

Status Run(const BatchConfig& config, const PrivateServerConfig& server) {
  RETURN_IF_ERROR(CheckFiles(config));
  ASSIGN_OR_RETURN(const std::string text, ReadFile(config.input, kMaxFileBytes));
  auto all = ParseBatchInput(text);
  if (!all.ok()) return all.status().WithContext(config.input);
  ASSIGN_OR_RETURN(BatchOutput output, BatchOutput::Open(config.output));
  std::vector<BatchRequest> requests;
  for (BatchRequest& request : *all) {
    if (!output.Has(request.custom_id)) requests.push_back(std::move(request));
  }
  RefuseLargeBodies(server.max_body_bytes, &requests);
  const size_t num_before = all->size() - requests.size();
  if (num_before > 0) {
    std::cerr << config.output << " has " << num_before << " of " << all->size()
              << " results already; " << requests.size() << " are left" << std::endl;
  }
  ProgressBar bar(requests.size(), isatty(STDERR_FILENO) != 0);
  OrderedResults results(&requests, &output, &bar);
  Status status = SendAll(requests, config, server, &results);
  bar.Finish();
  std::cerr << results.counts().num_written << " results written to " << config.output << ", "
            << results.counts().num_failed << " of them errors" << std::endl;
  return status;
}

}  // namespace

int RunBatch(const std::vector<std::string>& args) {
  BatchConfig config;
  PrivateServerConfig server;
  const StatusOr<FlagOutcome> parsed = ParseWithServeFlags(
      args, BatchFlags(config),
      "tandem run-batch -i IN -o OUT --model FOLDER [flags]: a file of requests, without a server",
      &server);
  if (!parsed.ok()) return ReportFailure(kCommand, parsed.status(), kExitBadFlags);
  if (*parsed == FlagOutcome::kHelpShown) return kExitOk;
  if (const Status status = InitLog("tandem", "WARNING"); !status.ok()) {
    return ReportFailure(kCommand, status, kExitBadFlags);
  }
  if (!config.output_tmp_dir.empty()) LOG_WARNING << "--output-tmp-dir has no effect here";
  if (config.enable_metrics) LOG_WARNING << "--enable-metrics has no effect here";
  const Status status = Run(config, server);
  return status.ok() ? static_cast<int>(kExitOk) : ReportFailure(kCommand, status);
}

}  // namespace tandem
