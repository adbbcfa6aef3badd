#pragma once

// Refuses new requests while too many wait for their first token, before any work is spent on them.
// Thread: any; one per process, shared by all shards (two atomics, touched per request, not per
// token). Units: engine requests (n of them for one API request) and their prompt tokens.

#include <atomic>
#include <cstdint>

#include "common/status.h"

namespace tandem {

struct AdmissionLimits {
  int64_t max_num_queued_reqs = 0;    // 0: no limit
  int64_t max_num_queued_tokens = 0;  // 0: no limit
};

class AdmissionGate {
 public:
  enum class Refusal { kNone, kRequests, kTokens };

  explicit AdmissionGate(AdmissionLimits limits) : limits_(limits) {}
  AdmissionGate(const AdmissionGate&) = delete;

  Refusal Check() const;
  int64_t num_queued_reqs() const { return num_reqs_.load(std::memory_order_relaxed); }
  int64_t num_queued_tokens() const { return num_tokens_.load(std::memory_order_relaxed); }

  // What one API request holds; given back as its choices start, or when it ends.
  class Ticket {
   public:
    explicit Ticket(AdmissionGate* gate) : gate_(gate) { Add(1, 0); }
    Ticket(const Ticket&) = delete;
    ~Ticket() { Add(-num_reqs_, -num_tokens_); }

    // To the true numbers, once the prompts are known.
    void Resize(int64_t num_reqs, int64_t num_tokens) {
      Add(num_reqs - num_reqs_, num_tokens - num_tokens_);
    }
    // One of its choices has its first token or has ended.
    void Release(int64_t num_tokens) { Add(-1, -num_tokens); }

   private:
    void Add(int64_t num_reqs, int64_t num_tokens);
    AdmissionGate* gate_;
    int64_t num_reqs_ = 0;
    int64_t num_tokens_ = 0;
  };

 private:
  const AdmissionLimits limits_;
  std::atomic<int64_t> num_reqs_{0};
  std::atomic<int64_t> num_tokens_{0};
};

// RESOURCE_EXHAUSTED, for the client.
Status RefusalStatus(AdmissionGate::Refusal refusal);

}  // namespace tandem
