# Build types, warnings, sanitizers and where things land. Nothing in here reaches whoever adds Fairlead as a subdirectory:
# variables are of this directory, and what a project of its own decides (build type, warnings) is left to the top level.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
if(PROJECT_IS_TOP_LEVEL)
  set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
endif()
# Together, because they look for each other when they run.
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)

option(FAIRLEAD_PROGRAMS "Build the programs, the drop-in libraries and the examples" ${PROJECT_IS_TOP_LEVEL})
option(FAIRLEAD_TESTS "Build the tests" ${PROJECT_IS_TOP_LEVEL})
option(FAIRLEAD_INSTALL "Install what is built" ${PROJECT_IS_TOP_LEVEL})
option(FAIRLEAD_WERROR "Compile with the warnings that Fairlead is free of, as errors" ${PROJECT_IS_TOP_LEVEL})
option(FAIRLEAD_FUZZ "Build the libFuzzer targets (needs clang)" OFF)
option(FAIRLEAD_BENCH "Build the Google Benchmark programs" ${PROJECT_IS_TOP_LEVEL})
option(FAIRLEAD_TOGETHER "In releases, compile as one what each small message goes through" ON)
set(FAIRLEAD_SANITIZE "" CACHE STRING "Sanitizers: empty, 'address,undefined' or 'thread'")
if(FAIRLEAD_TESTS AND NOT FAIRLEAD_PROGRAMS)
  message(FATAL_ERROR "FAIRLEAD_TESTS needs FAIRLEAD_PROGRAMS: the tests run the programs")
endif()
if(PROJECT_IS_TOP_LEVEL)
  option(BUILD_SHARED_LIBS "libfairlead.so; OFF: libfairlead.a" ON)
endif()

if(PROJECT_IS_TOP_LEVEL AND NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Dev or Release" FORCE)
endif()
# What sources include is more than half of what compiling them takes. Dev is built a source at a time, so that each is
# known to stand by itself.
set(batches ${PROJECT_IS_TOP_LEVEL})
if(CMAKE_BUILD_TYPE STREQUAL "Dev" AND NOT FAIRLEAD_SANITIZE)
  set(batches OFF)
endif()
option(FAIRLEAD_BATCHES "Compile up to eight sources as one; those that may not are APART" ${batches})
if(FAIRLEAD_BATCHES AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Wno-subobject-linkage>)  # takes the sources of a batch for headers
endif()
# -O2 in both: -O3 of GCC 12 gives false -Wrestrict errors. Dev keeps assertions.
if(PROJECT_IS_TOP_LEVEL)
  set(CMAKE_CXX_FLAGS_DEV "-O2 -g1")
  set(CMAKE_C_FLAGS_DEV "-O2 -g1")
  set(CMAKE_CXX_FLAGS_RELEASE "-O2 -g1 -DNDEBUG")
  set(CMAKE_C_FLAGS_RELEASE "-O2 -g1 -DNDEBUG")
endif()

add_library(fairlead_flags INTERFACE)
if(FAIRLEAD_WERROR)
  target_compile_options(fairlead_flags INTERFACE -Wall -Wextra -Wconversion -Werror)
endif()
target_include_directories(fairlead_flags INTERFACE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/include)
if(FAIRLEAD_SANITIZE)
  add_compile_options(-fsanitize=${FAIRLEAD_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${FAIRLEAD_SANITIZE})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    add_compile_options(-Wno-maybe-uninitialized)  # GCC 12 sees false ones in sanitized std::variant and std::string
  elseif(FAIRLEAD_SANITIZE MATCHES "thread")
    add_compile_definitions(__SANITIZE_THREAD__)  # as GCC says it
  else()
    add_compile_definitions(__SANITIZE_ADDRESS__)
  endif()
  # Sanitized code is slow to compile and large: -O1 halves both, and GCC's -Og takes a third off that.
  set(level -O1)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    set(level -Og)
  endif()
  string(REPLACE "-O2" "${level}" CMAKE_CXX_FLAGS_DEV "${CMAKE_CXX_FLAGS_DEV}")
  if(FAIRLEAD_SANITIZE MATCHES "thread" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    add_compile_options(-Wno-tsan)  # GCC: atomic_thread_fence is not modelled
  endif()
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  add_compile_options(-Wno-deprecated-declarations)  # clang sees std::stable_sort of libstdc++ 12 call what it deprecates
  add_compile_options("SHELL:-Xclang -fno-pch-timestamp")  # else ccache keeps nothing that a precompiled header was read for
endif()
if(FAIRLEAD_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)  # coverage of the libraries too: without it the fuzzers are blind
endif()

find_program(FAIRLEAD_CCACHE ccache)
if(PROJECT_IS_TOP_LEVEL AND FAIRLEAD_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Without these too it keeps nothing that a precompiled header was read for.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros ${FAIRLEAD_CCACHE})
  set(CMAKE_C_COMPILER_LAUNCHER ${FAIRLEAD_CCACHE})
endif()
