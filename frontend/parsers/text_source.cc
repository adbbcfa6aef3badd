#include "frontend/parsers/text_source.h"

#include "common/check.h"

namespace tandem {

void TextSource::Append(std::string_view text) {
  CHECK(!ended_);
  // Consumed bytes go when they are most of the buffer, so that each byte is moved O(1) times.
  if (cursor_ > buffer_.size() / 2) {
    buffer_.erase(0, cursor_);
    cursor_ = 0;
  }
  buffer_.append(text);
  ResumeWaiting();
}

void TextSource::End() {
  ended_ = true;
  ResumeWaiting();
}

void TextSource::ResumeWaiting() {
  while (waiting_ != nullptr && IsKnown(wanted_offset_)) {
    parse_internal::PromiseBase* next = std::exchange(waiting_, nullptr);
    while (next != nullptr) {
      parse_internal::PromiseBase* const parent = next->parent;
      next->handle.resume();
      if (waiting_ != nullptr) break;  // it waits, or something that it has called does
      next = parent;                   // it is done
    }
  }
}

void TextSource::Skip(size_t num_bytes) {
  DCHECK(num_bytes <= buffer_.size() - cursor_);
  cursor_ += num_bytes;
}

Parse<bool> TextSource::StartsWith(std::string_view word) {
  for (size_t i = 0; i < word.size(); ++i) {
    const int byte = co_await Peek(i);
    if (byte != static_cast<unsigned char>(word[i])) co_return false;
  }
  co_return true;
}

Parse<bool> TextSource::TrySkip(std::string_view word) {
  const bool found = co_await StartsWith(word);
  if (found) Skip(word.size());
  co_return found;
}

Parse<> TextSource::SkipBlanks() {
  for (;;) {
    const int byte = co_await Peek();
    if (!IsBlank(byte)) co_return;
    Skip(1);
  }
}

}  // namespace tandem
