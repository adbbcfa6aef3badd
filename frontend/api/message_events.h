#pragma once

// Writes the events of one streamed message of Anthropic's API:
//   message_start, then per block content_block_start, content_block_delta…, content_block_stop,
//   then message_delta (why it stopped, the usage) and message_stop.
// Thread: the shard's. Appends to a buffer; a delta of an open block allocates nothing.

#include <string>
#include <string_view>

#include "frontend/api/content_blocks.h"
#include "frontend/openai/json.h"
#include "frontend/openai/responses.h"

namespace tandem {

// Why a message ended.
struct MessageStop {
  std::string_view reason = "end_turn";
  std::string sequence;  // the stop sequence that was matched, with the reason stop_sequence
};

// The stop of a message whose last delta this is. Clients run the calls of a message that stops
// with tool_use, so one that a stop sequence cut short must not.
MessageStop StopOf(const MessageDelta& last, const ContentBlocks& blocks);

// {input_tokens, output_tokens}, and what the cache gave when the server shows it.
Json MessageUsageJson(const Usage& usage);

class MessageEvents final : public BlockSink {
 public:
  explicit MessageEvents(std::string* out) : out_(out), blocks_(this) {}

  // usage: of the request so far; nothing is generated yet when a message starts.
  void Start(const ResponseHead& head, const Usage& usage);
  void Add(MessageDelta& delta) { blocks_.Add(delta); }
  // Ends the open block; `last` is the delta with the finish reason, which has been added.
  void End(const MessageDelta& last);
  // After End.
  void Stop(const Usage& usage);

 private:
  void BeginBlock(BlockKind kind, const ToolCallDelta* call) override;
  void AppendToBlock(BlockKind kind, std::string_view text) override;
  void EndBlock(BlockKind kind) override;

  // An event of the open block, up to its own keys.
  void BeginEvent(std::string_view type);

  std::string* const out_;
  ContentBlocks blocks_;
  int num_blocks_ = 0;
  MessageStop stop_;
};

// thinking blocks carry a signature that clients send back with them; it proves nothing here.
std::string MakeSignature();

}  // namespace tandem
