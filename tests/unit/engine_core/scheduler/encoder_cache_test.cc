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
    const EncoderCache::Chunk chunk = cache.ChunkFor(*request, begin, num_tokens, most);
    awaits = chunk.awaits_slices();
    if (chunk.num_tokens > 0) request->status = wire::RequestStatus::kRunning;
    cache.Take(*request, begin, chunk);
    request->num_computed_tokens += chunk.num_tokens;
    return chunk.num_tokens;
  }
  // Ends the step: what it drops, then what it computes, with "..." the rest of an image, and how
  // many slices where it is not all of them. The next step has time for num_slices.
  std::string End(int32_t num_slices = EncoderCache::kAllSlices) {
    SchedulerOutput step;
    cache.TakeChanges(&step);
    cache.BeginStep(num_slices);
    std::string changes;
    for (const std::string& key : step.dropped_encoder_outputs) changes += "-" + key + " ";
    for (const EncoderInput& input : step.encoder_inputs) {
      changes += (input.image != nullptr ? "+" : "...") + input.key;
      const bool is_all = input.image != nullptr && input.image->num_slices == input.num_slices;
      changes += is_all ? " " : ":" + std::to_string(input.num_slices) + " ";
    }
    return changes;
  }

  EncoderCache cache;
  bool awaits = false;  // the request of the last Run, slices
};

// As Image, in slices.
std::shared_ptr<const ImageInput> Sliced(const std::string& id, int32_t begin, int32_t num_rows,
                                         int32_t num_slices) {
  auto image = std::make_shared<ImageInput>(*Image(id, begin, num_rows));
  image->num_slices = num_slices;
  return image;
}

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

TEST_CASE("encoder cache: a request that gets no tokens inside an image holds nothing new") {
  Steps steps(10);
  const auto a = With(1, {Image("a", 0, 6)}), b = With(2, {Image("b", 0, 6)});
  CHECK(steps.Run(b.get(), 9) == 9);
  a->num_computed_tokens = 3;  // found in the prefix cache
  CHECK(steps.Run(a.get(), 3) == 0);
  CHECK(steps.End() == "+b ");
  CHECK(steps.cache.num_held() == 6);
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

TEST_CASE("encoder cache: an image of more slices than a step has time for is read when all ran") {
  Steps steps(10);
  steps.cache.BeginStep(3);
  const auto request = With(1, {Sliced("a", 5, 6, 7), Sliced("b", 20, 4, 1)});
  CHECK(steps.Run(request.get(), 30) == 5);
  CHECK(steps.awaits);
  CHECK(steps.cache.is_under_way());
  CHECK(steps.End(3) == "+a:3 ");
  CHECK(steps.Run(request.get(), 25) == 0);
  CHECK(steps.awaits);
  CHECK(steps.End(3) == "...a:3 ");
  // One slice is left, so there is time for the other image.
  CHECK(steps.Run(request.get(), 25) == 25);
  CHECK_FALSE(steps.awaits);
  CHECK(steps.End() == "...a:1 +b ");
  CHECK_FALSE(steps.cache.is_under_way());
  steps.cache.ReleaseComputed(*request);
  CHECK(steps.cache.num_held() == 0);
  CHECK(steps.cache.num_kept() == 10);
}

TEST_CASE("encoder cache: one image is under way at a time, for several requests") {
  Steps steps(20);
  steps.cache.BeginStep(2);
  const auto a = With(1, {Sliced("a", 0, 6, 5)}), b = With(2, {Sliced("b", 0, 4, 1)}),
             c = With(3, {Sliced("a", 2, 6, 5)});
  CHECK(steps.Run(a.get(), 9) == 0);
  CHECK(steps.Run(b.get(), 9) == 0);
  CHECK(steps.awaits);
  CHECK(steps.Run(c.get(), 9) == 2);
  CHECK(steps.awaits);
  CHECK(steps.End(2) == "+a:2 ");
  // It is still wanted by one of them.
  steps.cache.End(*a);
  CHECK(steps.Run(b.get(), 9) == 0);
  CHECK(steps.End(2) == "...a:2 ");
  CHECK(steps.Run(b.get(), 9) == 9);
  CHECK(steps.Run(c.get(), 7) == 7);
  CHECK(steps.End() == "...a:1 +b ");
  CHECK(steps.cache.num_held() == 10);
}

TEST_CASE("encoder cache: an image that nobody wants any more is dropped under way") {
  Steps steps(10);
  steps.cache.BeginStep(2);
  const auto a = With(1, {Sliced("a", 0, 6, 5)}), b = With(2, {Sliced("b", 0, 8, 5)});
  CHECK(steps.Run(a.get(), 9) == 0);
  SECTION("between two steps") {
    CHECK(steps.End(2) == "+a:2 ");
    steps.cache.End(*a);  // the next step has its slices already
    CHECK_FALSE(steps.cache.is_under_way());
    CHECK(steps.cache.num_kept() == 0);
    CHECK(steps.Run(b.get(), 9) == 0);
    CHECK(steps.End() == "-a +b:2 ");
  }
  SECTION("in the step that began with it") {
    steps.cache.End(*a);
    CHECK(steps.Run(b.get(), 9) == 0);
    CHECK(steps.End() == "+b:2 ");
  }
}

TEST_CASE("encoder cache: a preempted request has its image computed, and holds no complete one") {
  Steps steps(10);
  steps.cache.BeginStep(2);
  const auto a = With(1, {Sliced("a", 3, 6, 4)}), b = With(2, {Sliced("b", 0, 8, 1)});
  CHECK(steps.Run(a.get(), 9) == 3);
  CHECK(steps.End(1) == "+a:2 ");
  steps.cache.Release(*a);
  a->status = wire::RequestStatus::kPreempted;
  a->num_computed_tokens = 0;
  CHECK(steps.cache.num_held() == 6);
  CHECK(steps.Run(b.get(), 9) == 0);
  CHECK(steps.End(2) == "...a:1 ");
  CHECK(steps.cache.num_held() == 0);  // the step that is being made completes it
  SECTION("it comes first") {
    CHECK(steps.Run(a.get(), 9) == 9);
    CHECK(steps.cache.num_held() == 6);
    CHECK(steps.Run(b.get(), 9) == 0);
    CHECK_FALSE(steps.awaits);
    CHECK(steps.End() == "...a:1 ");
  }
  SECTION("another takes the room") {
    CHECK(steps.Run(b.get(), 9) == 9);  // with the time of the slice that does not run
    CHECK(steps.Run(a.get(), 9) == 3);
    CHECK(steps.End() == "-a +b ");
  }
}

TEST_CASE("encoder cache: an image under way is not lost by its capacity, a reset drops it") {
  Steps steps(10);
  steps.cache.BeginStep(1);
  const auto a = With(1, {Sliced("a", 0, 6, 3)}), b = With(2, {Sliced("b", 0, 8, 1)});
  CHECK(steps.Run(a.get(), 9) == 0);
  CHECK(steps.End(1) == "+a:1 ");
  CHECK(steps.Run(b.get(), 9) == 0);
  CHECK(steps.awaits);  // not for room: others may pass it
  CHECK(steps.End(0) == "...a:1 ");
  steps.cache.Reset();
  CHECK_FALSE(steps.cache.is_under_way());
  CHECK(steps.cache.num_held() == 0);
  CHECK(steps.Run(a.get(), 9) == 0);
  CHECK(steps.awaits);
  CHECK(steps.End(3) == "-a ");
  CHECK(steps.Run(a.get(), 9) == 9);
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
  const bool is_one_under_way = GENERATE(false, true);
  Steps steps(12);
  const auto a = With(1, {Image("a", 0, 4)}), b = With(2, {Image("b", 0, 4)}),
             c = With(3, {Image("c", 0, 4)});
  for (Request* request : {a.get(), b.get(), c.get()}) steps.Run(request, 9);
  steps.End(2);
  steps.cache.Release(*b);
  steps.cache.Release(*a);
  const auto e = With(9, {Sliced("e", 0, 4, 5)});
  if (is_one_under_way) CHECK(steps.Run(e.get(), 9) == 0);
  steps.End(0);
  std::array<char, 256> bytes;
  ByteWriter out(bytes);
  steps.cache.Save(&out);
  REQUIRE(out.fits());
  Steps loaded(12);
  ByteReader in(std::string_view(bytes.data(), out.size()));
  REQUIRE(loaded.cache.Load(&in).ok());
  loaded.cache.BeginStep(is_one_under_way ? 2 : EncoderCache::kAllSlices);
  CHECK(loaded.cache.num_held() == (is_one_under_way ? 8 : 4));
  CHECK(loaded.cache.num_kept() == 12);
  if (is_one_under_way) {
    CHECK(loaded.End(2) == "...e:2 ");
    CHECK(loaded.Run(e.get(), 9) == 9);
    CHECK(loaded.End() == "...e:1 ");
    return;
  }
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
