#pragma once

// A compiled grammar, as the engine loop holds it: the socket of its process, the steps that go
// into the next packet, and what is not answered yet.
// Thread: engine loop; waits only in Receive. Failure: UNAVAILABLE when the process ended without a
// word, else what it said or that it did not answer; the grammar is of no more use then.

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/status.h"
#include "common/unique_fd.h"
#include "grammar/protocol.h"

namespace tandem {

class HeldGrammar {
 public:
  HeldGrammar(int64_t id, std::string packed_spec)
      : id_(id), packed_spec_(std::move(packed_spec)) {}

  int64_t id() const { return id_; }
  const std::string& packed_spec() const { return packed_spec_; }
  bool is_ready() const { return socket_ != nullptr; }
  void SetReady(std::shared_ptr<UniqueFd> socket) { socket_ = std::move(socket); }

  // Adds a step to the next packet. A packet that is full is sent and waited for, and so is each
  // before the last of a step with more tokens than fit one.
  Status Add(MatcherStep step);
  bool has_steps() const { return !packet_.empty(); }
  bool owes_replies() const { return !unanswered_.empty(); }
  Status Send();
  // Waits for the replies; the matchers that refused a token are added to *refused.
  Status Receive(std::vector<int64_t>* refused);

  // Requests that use it. Without any it is kept for the next, until others need its place.
  int num_users = 0;
  int64_t last_use = 0;

 private:
  Status Exchange();

  int64_t id_;
  std::string packed_spec_;
  std::shared_ptr<UniqueFd> socket_;
  std::vector<int32_t> packet_;
  std::vector<int64_t> matchers_;                // of the packet's steps
  std::deque<std::vector<int64_t>> unanswered_;  // the matchers of packets that were sent
  std::vector<int64_t> refused_;                 // in replies that were waited for on the way
};

}  // namespace tandem
