#pragma once

// A compiled grammar, as the engine loop holds it: the socket of its process, the steps that go
// into the next packets, and what is not answered yet. A process that does not answer in time is
// late; nothing is sent to it until it has.
// Thread: engine loop; waits only in Receive. Failure: DEADLINE_EXCEEDED when it has not answered,
// and Receive may be called again; UNAVAILABLE when the process ended without a word, else what it
// said; the grammar is of no more use then.

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/ids.h"
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
  bool is_ready() const { return socket_ != nullptr && !is_late; }
  void SetReady(std::shared_ptr<UniqueFd> socket) { socket_ = std::move(socket); }
  const std::shared_ptr<UniqueFd>& socket() const { return socket_; }

  // Adds a step to the next packet; one with more tokens than fit a packet, to several.
  void Add(MatcherStep step);
  bool has_steps() const { return !packets_.empty(); }
  bool owes_replies() const { return num_sent_ > 0; }
  // Sends what may be sent before replies have come; Receive sends the rest.
  Status Send();
  // Waits for the replies until `deadline` of the system's monotonic clock; the matchers that
  // refused a token are added to *refused.
  Status Receive(double deadline, std::vector<int64_t>* refused);

  // Requests that use it. Without any it is kept for the next, until others need its place.
  int num_users = 0;
  int64_t last_use = 0;
  // A mask that its process writes until it has answered.
  struct Ask {
    int64_t request_order = 0;
    RequestSlot slot{};
    int32_t row = 0;
  };
  std::vector<Ask> asks;
  bool is_late = false;
  double given_up_at = 0;  // a late one

 private:
  struct StepPacket {
    std::vector<int32_t> words;
    std::vector<int64_t> matchers;  // of its steps
  };

  int64_t id_;
  std::string packed_spec_;
  std::shared_ptr<UniqueFd> socket_;
  std::deque<StepPacket> packets_;  // not answered
  size_t num_sent_ = 0;             // of them, the first ones
};

}  // namespace tandem
