#include "frontend/tracing/span_exporter.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/clock.h"
#include "common/unique_fd.h"

#include <catch2/catch.hpp>

namespace tandem {
namespace {

struct Outcomes {
  std::array<std::atomic<int64_t>, 4> counts = {};

  SpanExporter::OnOutcome counter() {
    return [this](SpanOutcome outcome, int64_t num_spans) {
      counts[static_cast<size_t>(outcome)] += num_spans;
    };
  }
  int64_t operator[](SpanOutcome outcome) const { return counts[static_cast<size_t>(outcome)]; }
};

// A port that takes connections and never replies: nobody accepts.
struct SilentPort {
  SilentPort() : fd(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    REQUIRE(::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), size) == 0);
    REQUIRE(::listen(fd.get(), 16) == 0);
    REQUIRE(::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0);
    port = ntohs(address.sin_port);
  }
  UniqueFd fd;
  int port = 0;
};

TraceOptions OptionsFor(int port) {
  TraceOptions options;
  options.enabled = true;
  options.endpoint = {false, "127.0.0.1", std::to_string(port), "/v1/traces"};
  options.timeout_s = 60;
  options.max_queued_spans = 10;
  options.max_batch_spans = 5;
  return options;
}

TEST_CASE("span exporter: its queue is bounded, and nobody waits for a silent collector") {
  const SilentPort port;
  Outcomes outcomes;
  const double begin = SystemClock().Monotonic();
  {
    auto exporter = SpanExporter::Start(OptionsFor(port.port), outcomes.counter());
    REQUIRE(exporter.ok());
    for (int i = 0; i < 7; ++i) (*exporter)->TryAdd(std::vector<Span>(3));
    CHECK(outcomes[SpanOutcome::kQueueFull] == 12);  // nine fit
    (*exporter)->TryAdd(std::vector<Span>(1));       // the tenth too
    CHECK(outcomes[SpanOutcome::kQueueFull] == 12);
    (*exporter)->TryAdd(std::vector<Span>(1));
    CHECK(outcomes[SpanOutcome::kQueueFull] == 13);
  }
  // The end is bounded though a request may take a minute; nothing is left uncounted.
  CHECK(SystemClock().Monotonic() - begin < 30);
  CHECK(outcomes[SpanOutcome::kUndelivered] == 10);
  CHECK(outcomes[SpanOutcome::kExported] == 0);
}

TEST_CASE("span exporter: threads add at once and each span is counted once") {
  const SilentPort port;
  Outcomes outcomes;
  constexpr int kThreads = 4, kAdds = 1000;
  {
    auto exporter = SpanExporter::Start(OptionsFor(port.port), outcomes.counter());
    REQUIRE(exporter.ok());
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([&] {
        for (int add = 0; add < kAdds; ++add) (*exporter)->TryAdd(std::vector<Span>(1));
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  CHECK(outcomes[SpanOutcome::kQueueFull] + outcomes[SpanOutcome::kUndelivered] ==
        kThreads * kAdds);
  CHECK(outcomes[SpanOutcome::kUndelivered] <= 10);
}

TEST_CASE("span exporter: certificates that cannot be read are an error at the start") {
  TraceOptions options = OptionsFor(1);
  options.endpoint.is_tls = true;
  options.authorities = "/nowhere.pem";
  const auto exporter = SpanExporter::Start(options, Outcomes().counter());
  REQUIRE_FALSE(exporter.ok());
  CHECK(exporter.status().message().find("/nowhere.pem") == 0);
}

TEST_CASE("span exporter: which replies are worth another try") {
  for (const int status : {429, 502, 503, 504}) CHECK(IsWorthRetrying(status));
  for (const int status : {200, 301, 400, 401, 404, 413, 500, 501}) {
    CHECK_FALSE(IsWorthRetrying(status));
  }
}

}  // namespace
}  // namespace tandem
