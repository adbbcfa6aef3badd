#pragma once

// Refuses new requests while too many wait for their first token, or while a new one would wait too
// long for it, before the engine spends any work on them. The wait is predicted: the prompt tokens
// in the queue, its own included, times the seconds per queued token that recent requests have
// waited.
// Thread: any; one per process, shared by all shards (two atomics, touched per request, not per
// token). Units: engine requests (n of them for one API request) and their prompt tokens.

#include <atomic>
#include <cstdint>
#include <memory>

#include "common/status.h"

namespace tandem {

struct AdmissionLimits {
  int64_t max_num_queued_reqs = 0;    // 0: no limit
  int64_t max_num_queued_tokens = 0;  // 0: no limit
  double max_ttft_s = 0;              // predicted; 0: no limit
};

class AdmissionGate {
 public:
  enum class Refusal { kNone, kRequests, kTokens, kTtft };

  explicit AdmissionGate(AdmissionLimits limits) { SetLimits(limits); }
  AdmissionGate(const AdmissionGate&) = delete;

  // For requests that come from now on.
  void SetLimits(AdmissionLimits limits) {
    limits_ = std::make_shared<const AdmissionLimits>(limits);
  }
  // Before anything is known about a request.
  Refusal Check() const;
  // Once its prompts are known: whether the first token would come too late because of their
  // length. One that finds nothing else waiting passes, since no later time would be better for it.
  Refusal CheckPrompts(int64_t num_prompt_tokens) const;
  int64_t num_queued_reqs() const { return num_reqs_.load(std::memory_order_relaxed); }
  int64_t num_queued_tokens() const { return num_tokens_.load(std::memory_order_relaxed); }

  // How long a request that came now would wait for its first token.
  double predicted_ttft_s() const;
  // In whole seconds: when a request that is refused now may find room.
  int64_t RetryAfterSeconds() const;

  // What one API request holds; given back as its choices start, or when it ends.
  class Ticket {
   public:
    explicit Ticket(AdmissionGate* gate) : gate_(gate) { Add(1, 0); }
    Ticket(const Ticket&) = delete;
    ~Ticket() { Add(-num_reqs_, -num_tokens_); }

    // To the true numbers, once the prompts are known.
    void Resize(int64_t num_reqs, int64_t num_tokens) {
      Add(num_reqs - num_reqs_, num_tokens - num_tokens_);
      num_queued_at_entry_ = gate_->num_queued_tokens();
    }
    // Its first token came after this time.
    void OnFirstToken(double waited_s) { gate_->Learn(waited_s, num_queued_at_entry_); }
    // One of its choices has its first token or has ended.
    void Release(int64_t num_tokens) { Add(-1, -num_tokens); }

   private:
    void Add(int64_t num_reqs, int64_t num_tokens);
    AdmissionGate* gate_;
    int64_t num_reqs_ = 0;
    int64_t num_tokens_ = 0;
    int64_t num_queued_at_entry_ = 0;  // tokens, its own included
  };

 private:
  void Learn(double waited_s, int64_t num_queued_tokens);
  double SecondsPerToken() const;

  std::atomic<std::shared_ptr<const AdmissionLimits>> limits_;
  std::atomic<int64_t> num_reqs_{0};
  std::atomic<int64_t> num_tokens_{0};
  // Sums over recent requests. Two shards that learn at once may lose one of both.
  std::atomic<double> waited_s_{0};
  std::atomic<double> waited_tokens_{0};
};

// RESOURCE_EXHAUSTED, for the client.
Status RefusalStatus(AdmissionGate::Refusal refusal);

}  // namespace tandem
