#include "deploy/cli/bench/load_client.h"

#include <sys/resource.h>

#include <algorithm>
#include <future>
#include <utility>

#include "common/clock.h"
#include "deploy/cli/bench/client_socket.h"
#include "deploy/cli/bench/completion_reader.h"
#include "frontend/net/net.h"
#include "frontend/web/http_response.h"

namespace tandem {
namespace {

constexpr size_t kReadBytes = 64 << 10;
constexpr size_t kSentInARow = 8;
constexpr double kWatchSeconds =
    0.2;  // between two progress reports, and two looks for late requests

double Now() { return SystemClock().Monotonic(); }

double ThreadCpuSeconds() {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
         1e-6 * static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

// Each stream is a descriptor; the usual soft limit of 1,024 is for programs that use select.
void RaiseDescriptorLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

// The reader of one response; the two kinds differ in what they do with the body.
class ResponseSink {
 public:
  virtual ~ResponseSink() = default;
  virtual Status Take(const HttpResponse& response, std::string_view piece, double now) = 0;
  virtual Status Finish(const HttpResponse& response, double now) = 0;
};

class CompletionSink final : public ResponseSink {
 public:
  explicit CompletionSink(RequestOutcome* outcome) : reader_(outcome) {}
  Status Take(const HttpResponse& response, std::string_view piece, double now) override {
    return reader_.Take(response.status_code(), response.is_event_stream(), piece, now);
  }
  Status Finish(const HttpResponse& response, double now) override {
    return reader_.Finish(response.status_code(), response.reason(), now);
  }

 private:
  CompletionReader reader_;
};

class PageSink final : public ResponseSink {
 public:
  explicit PageSink(LoadReply* reply) : reply_(reply) {}
  Status Take(const HttpResponse&, std::string_view piece, double) override {
    reply_->body += piece;
    return OkStatus();
  }
  Status Finish(const HttpResponse& response, double) override {
    reply_->status_code = response.status_code();
    return OkStatus();
  }

 private:
  LoadReply* reply_;
};

}  // namespace

struct LoadClient::State {
  struct Running {
    LoadPlan plan;
    LoadRun result;
    std::vector<ClientSocket*> sockets;  // of the requests under way
    double begin = 0;
    size_t num_active = 0;
    size_t num_done = 0;
    size_t num_failed = 0;
    Event slot_free;
    Event all_done;
    std::promise<void> ended;
  };

  struct Fetching {
    FetchPlan plan;
    Status status;
    size_t num_active = 0;
    Event changed;
    std::promise<void> ended;
  };

  explicit State(LoadTarget load_target)
      : target(std::move(load_target)), read_buffer(kReadBytes) {}

  Awaitable<void> Send(Running* run);
  Awaitable<void> Watch(Running* run);
  Awaitable<void> SendOne(Running* run, size_t index);
  Awaitable<void> FetchAll(Fetching* run);
  Awaitable<void> FetchOne(Fetching* run, size_t index);
  Awaitable<void> GetPage(const std::string* bytes, double deadline, LoadReply* reply,
                          Status* status, std::promise<void> ended);
  Awaitable<Status> Exchange(const std::string* bytes, ResponseSink* sink, ClientSocket** in_use);
  Awaitable<Status> Talk(ClientSocket* socket, const std::string* bytes, ResponseSink* sink,
                         bool* received, bool* reusable);
  std::unique_ptr<ClientSocket> TakeIdle();

  const LoadTarget target;
  std::unique_ptr<ServerPeer> peer;
  std::vector<char> read_buffer;  // of the stream that is being read
  Shard shard{0};
  std::vector<std::unique_ptr<ClientSocket>> idle;
};

StatusOr<std::unique_ptr<LoadClient>> LoadClient::Start(LoadTarget target) {
  for (const std::string& line : target.header_lines) {
    if (line.find_first_of("\r\n") != line.npos) {
      return InvalidArgumentError("--header has a line end in it");
    }
  }
  RaiseDescriptorLimit();
  auto state = std::make_unique<State>(std::move(target));
  ASSIGN_OR_RETURN(state->peer, ServerPeer::Resolve(state->target.url, state->target.insecure));
  state->shard.Start();
  return std::unique_ptr<LoadClient>(new LoadClient(std::move(state)));
}

LoadClient::LoadClient(std::unique_ptr<State> state) : state_(std::move(state)) {}

LoadClient::~LoadClient() {
  state_->shard.Stop();
  state_->shard.Join();
  state_->idle.clear();
}

std::string LoadClient::PostBytes(const std::string& path, const std::string& json,
                                  const std::string& extra_header) const {
  std::string bytes = "POST " + state_->target.url.prefix + path +
                      " HTTP/1.1\r\nHost: " + state_->target.url.HostHeader() +
                      "\r\nUser-Agent: tandem-bench\r\nContent-Type: application/json\r\n";
  for (const std::string& line : state_->target.header_lines) bytes += line + "\r\n";
  if (!extra_header.empty()) bytes += extra_header + "\r\n";
  bytes += "Content-Length: " + std::to_string(json.size()) + "\r\n\r\n";
  return bytes += json;
}

LoadRun LoadClient::Run(LoadPlan plan) {
  State::Running run;
  run.plan = std::move(plan);
  const size_t count = run.plan.requests.size();
  if (count == 0) return {};
  run.result.outcomes.resize(count);
  run.sockets.resize(count);
  std::future<void> ended = run.ended.get_future();
  // Coroutines are started on their own thread.
  state_->shard.Post(
      [state = state_.get(), &run] { state->shard.Spawn(state->Watch(&run), "load"); });
  ended.wait();
  return std::move(run.result);
}

Status LoadClient::Fetch(FetchPlan plan) {
  State::Fetching run;
  run.plan = std::move(plan);
  std::future<void> ended = run.ended.get_future();
  state_->shard.Post(
      [state = state_.get(), &run] { state->shard.Spawn(state->FetchAll(&run), "fetch"); });
  ended.wait();
  return run.status;
}

StatusOr<LoadReply> LoadClient::Get(const std::string& path, double timeout_s) {
  std::string bytes = "GET " + state_->target.url.prefix + path +
                      " HTTP/1.1\r\nHost: " + state_->target.url.HostHeader() +
                      "\r\nUser-Agent: tandem-bench\r\n";
  for (const std::string& line : state_->target.header_lines) bytes += line + "\r\n";
  bytes += "\r\n";
  LoadReply reply;
  Status status;
  std::promise<void> ended;
  std::future<void> waiting = ended.get_future();
  const double deadline = Now() + timeout_s;
  state_->shard.Post([&, state = state_.get()] {
    state->shard.Spawn(state->GetPage(&bytes, deadline, &reply, &status, std::move(ended)), "page");
  });
  waiting.wait();
  RETURN_IF_ERROR(status);
  return reply;
}

// ---- On the network thread ----

// Starts the run and watches it to its end. All that a run refers to lives until `ended` is set,
// which is the last access to it.
Awaitable<void> LoadClient::State::Watch(Running* run) {
  std::promise<void> ended = std::move(run->ended);
  const double cpu_before = ThreadCpuSeconds();
  run->begin = Now();
  shard.Spawn(Send(run), "sender");
  while (!co_await run->all_done.WaitUntil(Now() + kWatchSeconds)) {
    const double oldest_start = Now() - run->plan.request_timeout_s;
    for (size_t i = 0; i < run->sockets.size(); ++i) {
      if (run->sockets[i] != nullptr && run->result.outcomes[i].start < oldest_start) {
        run->sockets[i]->Abort();
      }
    }
    if (run->plan.on_progress) run->plan.on_progress(run->num_done, run->num_failed);
  }
  run->result.cpu_s = ThreadCpuSeconds() - cpu_before;
  if (run->plan.on_progress) run->plan.on_progress(run->num_done, run->num_failed);
  ended.set_value();
}

Awaitable<void> LoadClient::State::Send(Running* run) {
  const size_t limit = run->plan.max_concurrency ? static_cast<size_t>(*run->plan.max_concurrency)
                                                 : run->plan.requests.size();
  const size_t count = run->plan.requests.size();
  for (size_t i = 0; i < count; ++i) {
    const double due = run->begin + run->plan.requests[i].due;
    if (due > Now()) co_await SleepUntil(due);
    while (run->num_active >= limit) {
      run->slot_free.Reset();
      co_await run->slot_free.Wait();
    }
    ++run->num_active;
    shard.Spawn(SendOne(run, i), "request");
    // When many requests are due at once, this lets their first responses be read before the last
    // request is sent. Not after the last one: the run may be over and destroyed by then.
    if ((i + 1) % kSentInARow == 0 && i + 1 < count) co_await SleepUntil(Now());
  }
}

Awaitable<void> LoadClient::State::SendOne(Running* run, size_t index) {
  const LoadRequest& request = run->plan.requests[index];
  RequestOutcome& outcome = run->result.outcomes[index];
  outcome.prompt_tokens = request.prompt_tokens;
  outcome.start = Now();
  outcome.queue_time = std::max(0.0, outcome.start - (run->begin + request.due));
  CompletionSink sink(&outcome);
  const Status status = co_await Exchange(&request.bytes, &sink, &run->sockets[index]);
  if (!status.ok()) {
    outcome.success = false;
    outcome.output_tokens = 0;
    outcome.error = Now() - outcome.start > run->plan.request_timeout_s ? "no response in time"
                                                                        : status.message();
    ++run->num_failed;
  }
  --run->num_active;
  run->slot_free.Set();
  if (++run->num_done < run->plan.requests.size()) co_return;
  run->result.duration = Now() - run->begin;
  run->all_done.Set();
}

Awaitable<void> LoadClient::State::FetchAll(Fetching* run) {
  std::promise<void> ended = std::move(run->ended);
  const FetchPlan& plan = run->plan;
  for (size_t i = 0; i < plan.num_requests; ++i) {
    while (run->status.ok() && (run->num_active >= plan.max_concurrency || !plan.may_start(i))) {
      run->changed.Reset();
      co_await run->changed.Wait();
    }
    if (!run->status.ok()) break;
    ++run->num_active;
    shard.Spawn(FetchOne(run, i), "request");
  }
  while (run->num_active > 0) {
    run->changed.Reset();
    co_await run->changed.Wait();
  }
  ended.set_value();
}

Awaitable<void> LoadClient::State::FetchOne(Fetching* run, size_t index) {
  const std::string bytes = run->plan.bytes(index);
  LoadReply reply;
  PageSink sink(&reply);
  ClientSocket* in_use = nullptr;
  Status status = co_await Exchange(&bytes, &sink, &in_use);
  if (status.ok()) status = run->plan.on_reply(index, std::move(reply));
  if (run->status.ok()) run->status = status;
  --run->num_active;
  run->changed.Set();
}

Awaitable<void> LoadClient::State::GetPage(const std::string* bytes, double deadline,
                                           LoadReply* reply, Status* status,
                                           std::promise<void> ended) {
  struct Alarm {
    ClientSocket* in_use = nullptr;
    bool over = false;
  };
  // Shared with the timer, which may expire after the page has arrived.
  const auto alarm = std::make_shared<Alarm>();
  shard.At(deadline, [alarm] {
    alarm->over = true;
    if (alarm->in_use != nullptr) alarm->in_use->Abort();
  });
  PageSink sink(reply);
  *status = co_await Exchange(bytes, &sink, &alarm->in_use);
  if (!status->ok() && alarm->over) *status = UnavailableError("no response in time");
  ended.set_value();
}

Awaitable<Status> LoadClient::State::Exchange(const std::string* bytes, ResponseSink* sink,
                                              ClientSocket** in_use) {
  while (true) {
    std::unique_ptr<ClientSocket> socket = TakeIdle();
    const bool is_used = socket != nullptr;
    if (!is_used) socket = std::make_unique<ClientSocket>(&shard, peer.get());
    *in_use = socket.get();
    Status status;
    bool received = false, reusable = false;
    if (!is_used) status = co_await socket->Connect();
    if (status.ok()) status = co_await Talk(socket.get(), bytes, sink, &received, &reusable);
    *in_use = nullptr;
    if (reusable) idle.push_back(std::move(socket));
    if (status.ok() || !is_used || received) co_return status;
  }
}

Awaitable<Status> LoadClient::State::Talk(ClientSocket* socket, const std::string* bytes,
                                          ResponseSink* sink, bool* received, bool* reusable) {
  CO_RETURN_IF_ERROR(co_await socket->Write(*bytes));
  double now = 0;
  HttpResponse* reading = nullptr;
  HttpResponse response([&](std::string_view piece) { return sink->Take(*reading, piece, now); });
  reading = &response;
  while (!response.done()) {
    const StatusOr<size_t> got = co_await socket->Read(read_buffer.data(), read_buffer.size());
    if (!got.ok()) co_return got.status();
    now = Now();
    if (*got == 0) {
      CO_RETURN_IF_ERROR(response.End());
      break;
    }
    *received = true;
    CO_RETURN_IF_ERROR(response.Feed(std::string_view(read_buffer.data(), *got)));
  }
  *reusable = response.done() && response.keep_alive();
  co_return sink->Finish(response, now);
}

std::unique_ptr<ClientSocket> LoadClient::State::TakeIdle() {
  while (!idle.empty()) {
    std::unique_ptr<ClientSocket> socket = std::move(idle.back());
    idle.pop_back();
    if (socket->IsIdle()) return socket;
  }
  return nullptr;
}

}  // namespace tandem
