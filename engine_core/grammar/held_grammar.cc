#include "engine_core/grammar/held_grammar.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/clock.h"
#include "common/forking/job_reply.h"
#include "common/packets.h"

namespace tandem {
namespace {

// That a socket takes in before its reader has read any: masks that were foreseen, and others.
constexpr size_t kMaxPacketsSent = 2;

int MsUntil(double deadline) {
  return static_cast<int>(std::ceil(std::max(0.0, deadline - SystemClock().Monotonic()) * 1e3));
}

}  // namespace

void HeldGrammar::Add(MatcherStep step) {
  std::span<const TokenId> tokens = step.tokens;
  while (tokens.size() > kMaxStepTokens) {
    MatcherStep part = step;
    part.mask_row = kNoMaskRow;
    part.tokens = tokens.first(kMaxStepTokens);
    part.drafts = {};
    tokens = tokens.subspan(kMaxStepTokens);
    Add(part);
  }
  step.tokens = tokens;
  const auto has_room = [&](const StepPacket& packet) {
    return (packet.words.size() + NumStepWords(step)) * sizeof(int32_t) <= kMaxPacketBytes;
  };
  if (packets_.size() == num_sent_ || !has_room(packets_.back())) packets_.emplace_back();
  AppendStep(step, &packets_.back().words);
  packets_.back().matchers.push_back(step.matcher_id);
}

Status HeldGrammar::Send() {
  while (num_sent_ < std::min(packets_.size(), kMaxPacketsSent)) {
    const std::vector<int32_t>& words = packets_[num_sent_++].words;
    const auto* bytes = reinterpret_cast<const char*>(words.data());
    RETURN_IF_ERROR(SendPacket(socket_->get(), {bytes, words.size() * sizeof(int32_t)}));
  }
  return OkStatus();
}

Status HeldGrammar::Receive(double deadline, std::vector<int64_t>* refused) {
  while (num_sent_ > 0) {
    ASSIGN_OR_RETURN(const Packet reply, ReceivePacket(socket_->get(), MsUntil(deadline)));
    if (IsErrorReply(reply)) return InvalidArgumentError(ErrorOf(reply));
    const std::vector<int64_t> matchers = std::move(packets_.front().matchers);
    packets_.pop_front();
    --num_sent_;
    if (reply.bytes.size() != matchers.size() + 1) return DataLossError("a malformed reply");
    for (size_t i = 0; i < matchers.size(); ++i) {
      if (reply.bytes[i + 1] != static_cast<char>(MatcherOutcome::kOk)) {
        refused->push_back(matchers[i]);
      }
    }
    RETURN_IF_ERROR(Send());
  }
  return OkStatus();
}

}  // namespace tandem
