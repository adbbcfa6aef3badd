#pragma once

// The memory in which masks are written, as both sides see it: rows, each with the mask of a
// request's next token, or of the one after a draft, and the run that begins there. A run is a
// number of tokens that must follow one another, because each is the only one that the grammar
// allows. Pure; any thread. Borrows the memory.

#include <cstddef>
#include <cstdint>
#include <span>

namespace tandem {

constexpr size_t kMaxRunTokens = 16;

class MaskRows {
 public:
  MaskRows() = default;
  // Whole rows of NumRowWords words.
  MaskRows(std::span<int32_t> words, int32_t vocab_size)
      : words_(words), num_mask_words_(NumMaskWords(vocab_size)) {}

  static size_t NumRowWords(int32_t vocab_size) {
    return NumMaskWords(vocab_size) + 1 + kMaxRunTokens;
  }

  size_t count() const { return num_mask_words_ == 0 ? 0 : words_.size() / num_row_words(); }
  // Bit i % 32 of word i / 32 allows token i.
  std::span<int32_t> mask(size_t row) const {
    return words_.subspan(row * num_row_words(), num_mask_words_);
  }
  // The number of its tokens, 0 where there are several for the next place; then the tokens.
  std::span<int32_t> run(size_t row) const {
    return words_.subspan(row * num_row_words() + num_mask_words_, 1 + kMaxRunTokens);
  }

 private:
  static size_t NumMaskWords(int32_t vocab_size) {
    return (static_cast<size_t>(vocab_size) + 31) / 32;
  }
  size_t num_row_words() const { return num_mask_words_ + 1 + kMaxRunTokens; }

  std::span<int32_t> words_;
  size_t num_mask_words_ = 0;
};

}  // namespace tandem
