#pragma once

// POST /v1/chat/completions: its two forms of answer and the handler.
// Thread: the shard's. The response classes know nothing of sockets: outputs in, JSON text out.

#include <optional>
#include <string>
#include <vector>

#include "frontend/api/collected_choice.h"
#include "frontend/api/generation.h"
#include "frontend/api/render.h"
#include "frontend/api/serve.h"
#include "frontend/openai/chat_request.h"

namespace tandem {

// What of the request the answer depends on.
struct ChatShape {
  ResponseHead head;
  ChoiceShape choice;
  std::optional<int64_t> top_logprobs;  // empty: no logprobs
  bool show_prompt_logprobs = false;
  bool return_prompt_text = false;
  std::string role;
  std::string echoed_text;  // of the last message, shown before the answer
  StreamUsage usage;
};
ChatShape MakeShape(const ChatRequest& request, const InputConfig& config,
                    const ApiOptions& options);

// Appends one JSON body to *out at the end.
class ChatResponse final : public GenerationListener {
 public:
  // prompts: of each choice, borrowed like the tokenizer.
  ChatResponse(const Tokenizer& tokenizer, ChatShape shape,
               const std::vector<ChoicePrompt>& prompts, std::string* out);
  void OnDelta(int choice, const OutputDelta& delta, const Usage& usage) override;
  void OnEnd(const Usage& usage) override;

 private:
  const Tokenizer& tokenizer_;
  const ChatShape shape_;
  const ChoicePrompt prompt_;  // all choices have the same
  std::vector<CollectedChoice> choices_;
  std::vector<PositionLogprobs> prompt_logprobs_;
  wire::RawValue kv_transfer_params_;
  std::string* const out_;
};

// Appends each choice's events to *out: its role, the echoed text, the deltas, its end.
class ChatStream final : public GenerationListener {
 public:
  ChatStream(const Tokenizer& tokenizer, ChatShape shape, std::vector<ChoicePrompt> prompts,
             std::string* out);
  void OnDelta(int choice, const OutputDelta& delta, const Usage& usage) override;
  void OnEnd(const Usage& usage) override;

 private:
  void AppendRole(int choice, const Usage& usage);
  void AppendContent(int choice, std::string_view text, const OutputDelta* delta,
                     const Usage& usage);
  void AppendLogprobs(const OutputDelta& delta);
  const Usage* Shown(const Usage& usage) const {
    return shape_.usage.on_every_chunk ? &usage : nullptr;
  }

  const Tokenizer& tokenizer_;
  const ChatShape shape_;
  const ChunkWriter writer_;
  const std::vector<ChoicePrompt> prompts_;
  std::vector<bool> started_;
  std::string* const out_;
};

StatusOr<PreparedRequest> PrepareChat(const Json& body, PrepareInput input);
Awaitable<void> HandleChatCompletions(Exchange& exchange, ApiContext* context);

}  // namespace tandem
