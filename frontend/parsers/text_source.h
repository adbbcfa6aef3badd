#pragma once

// A text that arrives in pieces, and the coroutines that parse it. A parser sees one byte after the
// other and never where a piece ends, so any cutting of the text into pieces gives the same result;
// and it decides as soon as the bytes that decide are there, so nothing is held back longer.
//   Parse<> Copy(TextSource& text, …) { const int byte = co_await text.Peek(); … }
// gcc 12 miscompiles a coroutine that has co_await in a condition and no variable of its own: such
// a coroutine awaits into a variable. A coroutine runs inside Append and End, on the caller's
// thread, until it needs bytes that have not come. Coroutines are resumed one by one, not from
// within each other, so the depth of the stack is that of the calls, however long the text is.
// Memory: the bytes that are not consumed yet. Failure: none; a text that fits no format is for the
// parser to handle.

#include <coroutine>
#include <cstddef>
#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace tandem {

inline constexpr int kEndOfText = -1;

namespace parse_internal {

struct PromiseBase {
  std::coroutine_handle<> handle;
  PromiseBase* parent = nullptr;  // waits for this one's end; null: nobody does

  std::suspend_always initial_suspend() noexcept { return {}; }
  std::suspend_always final_suspend() noexcept { return {}; }
  void unhandled_exception() { std::terminate(); }
};

template <class T>
struct Promise : PromiseBase {
  std::optional<T> value;
  template <class U>
  void return_value(U&& result) {
    value.emplace(std::forward<U>(result));
  }
  T Take() { return std::move(*value); }
};

template <>
struct Promise<void> : PromiseBase {
  void return_void() {}
  void Take() {}
};

}  // namespace parse_internal

// A parsing coroutine. co_await runs it to its end and gives its result.
template <class T = void>
class [[nodiscard]] Parse {
 public:
  struct promise_type : parse_internal::Promise<T> {
    Parse get_return_object() {
      const auto self = std::coroutine_handle<promise_type>::from_promise(*this);
      this->handle = self;
      return Parse(self);
    }
  };

  Parse(Parse&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Parse& operator=(Parse&&) = delete;
  ~Parse() {
    if (handle_) handle_.destroy();
  }

  bool await_ready() const { return false; }
  template <class Promise>
  bool await_suspend(std::coroutine_handle<Promise> parent) {
    handle_.resume();
    if (handle_.done()) return false;
    handle_.promise().parent = &parent.promise();
    return true;
  }
  T await_resume() { return handle_.promise().Take(); }

  // Runs the outermost coroutine to its first wait.
  void Start() { handle_.resume(); }
  bool done() const { return handle_.done(); }

 private:
  explicit Parse(std::coroutine_handle<promise_type> handle) : handle_(handle) {}
  std::coroutine_handle<promise_type> handle_;
};

class TextSource {
 public:
  TextSource() = default;
  TextSource(const TextSource&) = delete;
  TextSource& operator=(const TextSource&) = delete;

  // More text; runs the parser that waits for it.
  void Append(std::string_view text);
  // No more text will come.
  void End();

  // ---- for parsers ----
  struct Awaiter {
    TextSource* text;
    size_t offset;
    bool await_ready() const { return text->IsKnown(offset); }
    template <class Promise>
    void await_suspend(std::coroutine_handle<Promise> handle) {
      text->waiting_ = &handle.promise();
      text->wanted_offset_ = offset;
    }
    int await_resume() const { return text->At(offset); }
  };
  // The byte `offset` after the cursor, or kEndOfText.
  Awaiter Peek(size_t offset = 0) { return {this, offset}; }
  // What has come and is not consumed; changes with every co_await and Skip.
  std::string_view pending() const { return std::string_view(buffer_).substr(cursor_); }
  // Moves the cursor over bytes that are pending.
  void Skip(size_t num_bytes);
  // Takes back what was skipped last, as long as the parser has not waited since.
  void Unskip(size_t num_bytes) { cursor_ -= num_bytes; }

  // Whether the text goes on with `word`; consumes nothing. Decides at the first byte that differs.
  Parse<bool> StartsWith(std::string_view word);
  // The same, and consumes it if so.
  Parse<bool> TrySkip(std::string_view word);
  // Consumes blanks, tabs and line ends.
  Parse<> SkipBlanks();

 private:
  friend struct Awaiter;
  bool IsKnown(size_t offset) const { return ended_ || offset < buffer_.size() - cursor_; }
  int At(size_t offset) const {
    if (offset >= buffer_.size() - cursor_) return kEndOfText;
    return static_cast<unsigned char>(buffer_[cursor_ + offset]);
  }
  void ResumeWaiting();

  std::string buffer_;
  size_t cursor_ = 0;
  bool ended_ = false;
  parse_internal::PromiseBase* waiting_ = nullptr;
  size_t wanted_offset_ = 0;
};

inline bool IsBlank(int byte) {
  return byte == ' ' || byte == '\n' || byte == '\t' || byte == '\r';
}

}  // namespace tandem
