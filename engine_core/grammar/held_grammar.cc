#include "engine_core/grammar/held_grammar.h"

#include <utility>

#include "common/forking/job_reply.h"
#include "common/packets.h"

namespace tandem {
namespace {

// The process ends by itself when a step takes too much CPU time; this is for a host that gives it
// none.
constexpr int kReplyTimeoutMs = 10'000;

}  // namespace

Status HeldGrammar::Add(MatcherStep step) {
  std::span<const TokenId> tokens = step.tokens;
  while (tokens.size() > kMaxStepTokens) {
    MatcherStep part = step;
    part.mask_row = kNoMaskRow;
    part.tokens = tokens.first(kMaxStepTokens);
    part.drafts = {};
    tokens = tokens.subspan(kMaxStepTokens);
    RETURN_IF_ERROR(Add(part));
  }
  step.tokens = tokens;
  const size_t num_words = packet_.size() + NumStepWords(step);
  if (num_words * sizeof(int32_t) > kMaxPacketBytes) RETURN_IF_ERROR(Exchange());
  AppendStep(step, &packet_);
  matchers_.push_back(step.matcher_id);
  return OkStatus();
}

Status HeldGrammar::Exchange() {
  RETURN_IF_ERROR(Send());
  std::vector<int64_t> refused;
  RETURN_IF_ERROR(Receive(&refused));
  refused_.insert(refused_.end(), refused.begin(), refused.end());
  return OkStatus();
}

Status HeldGrammar::Send() {
  const auto* bytes = reinterpret_cast<const char*>(packet_.data());
  Status sent = SendPacket(socket_->get(), {bytes, packet_.size() * sizeof(int32_t)});
  packet_.clear();
  unanswered_.push_back(std::move(matchers_));
  matchers_.clear();
  return sent;
}

Status HeldGrammar::Receive(std::vector<int64_t>* refused) {
  refused->insert(refused->end(), refused_.begin(), refused_.end());
  refused_.clear();
  for (; !unanswered_.empty(); unanswered_.pop_front()) {
    ASSIGN_OR_RETURN(const Packet reply, ReceivePacket(socket_->get(), kReplyTimeoutMs));
    if (IsErrorReply(reply)) return InvalidArgumentError(reply.bytes.substr(1));
    const std::vector<int64_t>& matchers = unanswered_.front();
    if (reply.bytes.size() != matchers.size() + 1) return DataLossError("a malformed reply");
    for (size_t i = 0; i < matchers.size(); ++i) {
      if (reply.bytes[i + 1] != static_cast<char>(MatcherOutcome::kOk)) {
        refused->push_back(matchers[i]);
      }
    }
  }
  return OkStatus();
}

}  // namespace tandem
