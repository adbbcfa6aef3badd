#include "frontend/api/admission_gate.h"

#include <memory>
#include <vector>

#include <catch2/catch.hpp>

namespace tandem {
namespace {

using Refusal = AdmissionGate::Refusal;

// A request that waits, with so many prompt tokens.
std::unique_ptr<AdmissionGate::Ticket> Wait(AdmissionGate* gate, int64_t num_tokens) {
  auto ticket = std::make_unique<AdmissionGate::Ticket>(gate);
  ticket->Resize(1, num_tokens);
  return ticket;
}

TEST_CASE("admission_gate: the wait is predicted from the queue and from what others have waited") {
  AdmissionGate gate({.max_ttft_s = 2});
  CHECK(gate.predicted_ttft_s() == 0);  // nothing is known
  {
    // 100 tokens in the queue took a second, 300 took three.
    const auto first = Wait(&gate, 100);
    const auto second = Wait(&gate, 200);
    first->OnFirstToken(1);
    second->OnFirstToken(3);
  }
  CHECK(gate.predicted_ttft_s() == 0);  // the queue is empty
  CHECK(gate.Check() == Refusal::kNone);
  const auto waiting = Wait(&gate, 150);
  CHECK(gate.predicted_ttft_s() == Approx(1.5));
  CHECK(gate.Check() == Refusal::kNone);
  const auto too_much = Wait(&gate, 1000);
  CHECK(gate.predicted_ttft_s() == Approx(11.5));
  CHECK(gate.Check() == Refusal::kTtft);
  CHECK(gate.RetryAfterSeconds() == 10);  // 9.5 until the wait is 2 s
}

TEST_CASE("admission_gate: a prompt counts in its own wait, unless nothing else waits") {
  AdmissionGate gate({.max_ttft_s = 2});
  CHECK(gate.CheckPrompts(1'000'000) == Refusal::kNone);  // nothing is known
  Wait(&gate, 100)->OnFirstToken(1);
  CHECK(gate.CheckPrompts(1'000'000) == Refusal::kNone);
  const auto waiting = Wait(&gate, 150);
  CHECK(gate.CheckPrompts(50) == Refusal::kNone);
  CHECK(gate.CheckPrompts(51) == Refusal::kTtft);
  CHECK(gate.RetryAfterSeconds() == 2);  // 1.5 until the queue is empty
  gate.SetLimits({});
  CHECK(gate.CheckPrompts(51) == Refusal::kNone);
}

TEST_CASE("admission_gate: the newest waits count most") {
  AdmissionGate gate({.max_ttft_s = 2});
  for (int i = 0; i < 100; ++i) Wait(&gate, 100)->OnFirstToken(1);
  for (int i = 0; i < 50; ++i) Wait(&gate, 100)->OnFirstToken(0.1);
  const auto waiting = Wait(&gate, 1000);
  CHECK(gate.predicted_ttft_s() == Approx(1).epsilon(0.1));
}

TEST_CASE("admission_gate: Retry-After follows from the limit that is reached") {
  SECTION("tokens") {
    AdmissionGate gate({.max_num_queued_tokens = 100});
    Wait(&gate, 100)->OnFirstToken(1);
    const auto waiting = Wait(&gate, 1500);
    CHECK(gate.Check() == Refusal::kTokens);
    CHECK(gate.RetryAfterSeconds() == 14);
  }
  SECTION("requests") {
    AdmissionGate gate({.max_num_queued_reqs = 3});
    Wait(&gate, 100)->OnFirstToken(1);
    std::vector<std::unique_ptr<AdmissionGate::Ticket>> waiting;
    for (int i = 0; i < 4; ++i) waiting.push_back(Wait(&gate, 400));
    CHECK(gate.Check() == Refusal::kRequests);
    CHECK(gate.RetryAfterSeconds() == 8);  // 16 s for 4; 2 of them are too many
  }
  SECTION("nothing is known") {
    AdmissionGate gate({.max_num_queued_reqs = 1});
    const auto waiting = Wait(&gate, 400);
    CHECK(gate.Check() == Refusal::kRequests);
    CHECK(gate.RetryAfterSeconds() == 1);
  }
  SECTION("it has a limit itself") {
    AdmissionGate gate({.max_ttft_s = 1});
    Wait(&gate, 1)->OnFirstToken(60);
    const auto waiting = Wait(&gate, 100000);
    CHECK(gate.RetryAfterSeconds() == 600);
  }
}

}  // namespace
}  // namespace tandem
