#pragma once

// A message's deltas as the content blocks of Anthropic's API: thinking, text and calls, one block
// open at a time, each begun when its first piece comes. The blocks depend on the order of the
// pieces only, so a stream and a body that are built from the same message agree.
// Thread: the shard's. Borrows the sink.

#include <optional>
#include <string>
#include <string_view>

#include "frontend/processing/message_delta.h"

namespace tandem {

enum class BlockKind { kThinking, kText, kToolUse };

// Where blocks go.
class BlockSink {
 public:
  virtual ~BlockSink() = default;
  // call: of a kToolUse block; has the id and the name.
  virtual void BeginBlock(BlockKind kind, const ToolCallDelta* call) = 0;
  // text: of a kToolUse block, the next piece of its arguments. Never empty.
  virtual void AppendToBlock(BlockKind kind, std::string_view text) = 0;
  virtual void EndBlock(BlockKind kind) = 0;
};

class ContentBlocks {
 public:
  explicit ContentBlocks(BlockSink* sink) : sink_(sink) {}

  void Add(MessageDelta& delta);
  // The message has ended.
  void End() { Close(); }

  bool has_calls() const { return last_call_ >= 0; }
  // Whether there are calls, and the arguments of the last one are JSON.
  bool has_whole_calls() const;

 private:
  void AddText(BlockKind kind, std::string_view text);
  void AddCall(const ToolCallDelta& call);
  void Open(BlockKind kind, const ToolCallDelta* call);
  void Close();

  BlockSink* const sink_;
  std::optional<BlockKind> open_;
  int last_call_ = -1;
  std::string arguments_;  // of the last call
};

}  // namespace tandem
