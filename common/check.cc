#include "common/check.h"

#include <cstdlib>
#include <string>

#include "common/last_words.h"

namespace tandem::internal {

CheckFailure::CheckFailure(const char* file, int line, const char* condition) {
  stream_ << file << ":" << line << ": CHECK failed: " << condition << " ";
}

CheckFailure::~CheckFailure() {
  std::string text = stream_.str();
  text += '\n';
  WriteLastWords(text);
  std::abort();
}

}  // namespace tandem::internal
