// The rules of the cache of images' rows, one by one. That they hold together, under any load, is
// the simulation's to find out.

#include "engine_core/scheduler/encoder_cache.h"

#include <array>

#include <catch2/catch.hpp>

namespace tandem {
namespace {

// num_before tokens without rows come first in its place.
std::shared_ptr<const ImageInput> Image(const std::string& id, int32_t begin, int32_t num_rows,
                                        int32_t num_before = 0) {
  auto image = std::make_shared<ImageInput>();
  image->identifier = id;
  image->key = id;
  image->begin = begin;
  image->num_tokens = num_before + num_rows;
  image->runs = {{begin + num_before, num_rows}};
  image->num_rows = num_rows;
  return image;
}

std::unique_ptr<Request> With(int64_t order, RequestImages images) {
  wire::EngineCoreRequest request;
  request.request_id = std::to_string(order);
  request.prompt_token_ids.assign(100, 0);
  RequestNeeds needs;
  needs.images = std::make_shared<const RequestImages>(std::move(images));
  return std::make_unique<Request>(std::move(request), order, needs);
}

class Steps {
 public:
  explicit Steps(int32_t num_rows, bool needs_whole = false) : cache(num_rows, needs_whole) {
    cache.BeginStep();
  }
  // Lets the request go on by up to num_tokens; how many it was.
  int32_t Run(Request* request, int32_t num_tokens, int32_t most = 1000) {
    const int32_t begin = request->num_computed_tokens;
    const int32_t count = cache.NumTokensFor(*request, begin, num_tokens, most);
    cache.Take(*request, begin, count);
    request->num_computed_tokens += count;
    return count;
  }
  // Ends the step: what it drops, then what it computes.
  std::string End() {
    SchedulerOutput step;
    cache.TakeChanges(&step);
    cache.BeginStep();
    std::string changes;
    for (const std::string& key : step.dropped_encoder_outputs) changes += "-" + key + " ";
    for (const auto& image : step.encoder_inputs) changes += "+" + image->key + " ";
    return changes;
  }

  EncoderCache cache;
};

TEST_CASE("encoder cache: a chunk ends before an image whose rows do not fit") {
  Steps steps(10);
  const auto request = With(1, {Image("a", 5, 6), Image("b", 12, 6)});
  CHECK(steps.Run(request.get(), 30) == 12);
  CHECK(steps.End() == "+a ");
  // Its rows are held until all of its tokens have been computed.
  CHECK(steps.Run(request.get(), 18) == 0);
  CHECK(steps.End().empty());
  steps.cache.ReleaseComputed(*request);
  CHECK(steps.cache.num_held() == 0);
  CHECK(steps.cache.num_kept() == 6);
  CHECK(steps.Run(request.get(), 18) == 18);
  CHECK(steps.End() == "-a +b ");
  CHECK(steps.cache.num_kept() == 6);
}

TEST_CASE("encoder cache: an image in the middle is held, and nothing else is computed for it") {
  Steps steps(10);
  const auto request = With(1, {Image("a", 2, 8)});
  CHECK(steps.Run(request.get(), 5) == 5);
  CHECK(steps.End() == "+a ");
  steps.cache.ReleaseComputed(*request);
  CHECK(steps.cache.num_held() == 8);
  CHECK(steps.Run(request.get(), 50) == 50);
  CHECK(steps.End().empty());
}

TEST_CASE("encoder cache: requests share rows, also after one of them has ended") {
  Steps steps(10);
  const auto first = With(1, {Image("a", 0, 6)}), second = With(2, {Image("a", 3, 6)});
  CHECK(steps.Run(first.get(), 20) == 20);
  CHECK(steps.Run(second.get(), 20) == 20);
  CHECK(steps.End() == "+a ");
  steps.cache.Release(*first);
  CHECK(steps.cache.num_held() == 6);
  steps.cache.Release(*second);
  CHECK(steps.cache.num_held() == 0);
  const auto third = With(3, {Image("a", 50, 6), Image("a", 60, 6)});
  CHECK(steps.Run(third.get(), 100) == 100);
  CHECK(steps.End().empty());
}

TEST_CASE("encoder cache: those released first are dropped first, what a chunk reads is not") {
  Steps steps(12);
  const auto a = With(1, {Image("a", 0, 4)}), b = With(2, {Image("b", 0, 4)}),
             c = With(3, {Image("c", 0, 4)});
  for (Request* request : {a.get(), b.get(), c.get()}) CHECK(steps.Run(request, 9) == 9);
  CHECK(steps.End() == "+a +b +c ");
  for (Request* request : {b.get(), a.get(), c.get()}) steps.cache.Release(*request);
  const auto next = With(4, {Image("b", 0, 4), Image("d", 10, 4)});
  CHECK(steps.Run(next.get(), 20) == 20);
  CHECK(steps.End() == "-a +d ");
  // A kept image later in the chunk leaves less room for those before it.
  steps.cache.Release(*next);
  const auto last = With(5, {Image("e", 0, 9), Image("c", 10, 4)});
  CHECK(steps.Run(last.get(), 20) == 10);
  CHECK(steps.End() == "-c -b -d +e ");
}

TEST_CASE("encoder cache: what was taken back in the same step is not computed") {
  Steps steps(10);
  const auto first = With(1, {Image("a", 0, 6)}), second = With(2, {Image("b", 0, 10)});
  CHECK(steps.Run(first.get(), 20) == 20);
  CHECK(steps.Run(second.get(), 20) == 0);
  steps.cache.Release(*first);
  CHECK(steps.Run(second.get(), 20) == 20);
  CHECK(steps.End() == "+b ");
  CHECK(steps.cache.num_kept() == 10);
}

TEST_CASE("encoder cache: tokens around the rows need none") {
  Steps steps(4);
  const auto first = With(1, {Image("a", 0, 4)}), second = With(2, {Image("b", 10, 4, 3)});
  CHECK(steps.Run(first.get(), 20) == 20);
  CHECK(steps.Run(second.get(), 13) == 13);
  CHECK(steps.Run(second.get(), 1) == 0);
  CHECK(steps.End() == "+a ");
}

TEST_CASE("encoder cache: no chunk ends inside an image that must be whole") {
  Steps steps(100, /*needs_whole=*/true);
  const auto request = With(1, {Image("a", 5, 10), Image("b", 20, 10)});
  CHECK(steps.Run(request.get(), 8) == 5);       // before it
  CHECK(steps.Run(request.get(), 8, 9) == 0);    // the step has too little room
  CHECK(steps.Run(request.get(), 8, 10) == 10);  // beyond the chunk's limit
  CHECK(steps.Run(request.get(), 15, 15) == 15);
  CHECK(steps.End() == "+a +b ");
  const auto found = With(2, {Image("a", 5, 10)});
  found->num_computed_tokens = 8;  // the prefix cache had its beginning
  CHECK(steps.Run(found.get(), 3, 6) == 0);
  CHECK(steps.Run(found.get(), 3, 7) == 7);
  CHECK(steps.cache.Check(found->images.get(), 10).ok());
  CHECK(steps.cache.Check(found->images.get(), 9).code() == StatusCode::kInvalidArgument);
  CHECK(EncoderCache(10, false).Check(found->images.get(), 9).ok());
}

TEST_CASE("encoder cache: the largest image that was met has room") {
  Steps steps(4);
  const auto request = With(1, {Image("a", 0, 9)});
  CHECK(steps.Run(request.get(), 20) == 0);
  steps.cache.MakeRoomFor(request->images.get());
  steps.cache.BeginStep();
  CHECK(steps.Run(request.get(), 20) == 20);
  CHECK(steps.End() == "+a ");
}

TEST_CASE("encoder cache: after a reset everything is computed again") {
  Steps steps(10);
  const auto request = With(1, {Image("a", 0, 6), Image("b", 40, 2)});
  CHECK(steps.Run(request.get(), 3) == 3);
  CHECK(steps.End() == "+a ");
  steps.cache.Reset();
  CHECK(steps.cache.num_held() == 0);
  CHECK(steps.cache.has_dropped());
  CHECK(steps.Run(request.get(), 10) == 10);
  CHECK(steps.End() == "-a +a ");
  CHECK_FALSE(steps.cache.has_dropped());
  steps.cache.Release(*request);
  CHECK(steps.cache.num_held() == 0);
}

TEST_CASE("encoder cache: a checkpoint has who holds what, and the order of dropping") {
  Steps steps(12);
  const auto a = With(1, {Image("a", 0, 4)}), b = With(2, {Image("b", 0, 4)}),
             c = With(3, {Image("c", 0, 4)});
  for (Request* request : {a.get(), b.get(), c.get()}) steps.Run(request, 9);
  steps.End();
  steps.cache.Release(*b);
  steps.cache.Release(*a);
  std::array<char, 256> bytes;
  ByteWriter out(bytes);
  steps.cache.Save(&out);
  REQUIRE(out.fits());
  Steps loaded(12);
  ByteReader in(std::string_view(bytes.data(), out.size()));
  REQUIRE(loaded.cache.Load(&in).ok());
  loaded.cache.BeginStep();
  CHECK(loaded.cache.num_held() == 4);
  CHECK(loaded.cache.num_kept() == 12);
  const auto d = With(4, {Image("d", 0, 8)});
  CHECK(loaded.Run(d.get(), 9) == 9);
  CHECK(loaded.End() == "-b -a +d ");
  for (size_t size = 0; size < out.size(); ++size) {
    EncoderCache cut(12, false);
    ByteReader part(std::string_view(bytes.data(), size));
    CHECK_FALSE(cut.Load(&part).ok());
  }
}

}  // namespace
}  // namespace tandem
