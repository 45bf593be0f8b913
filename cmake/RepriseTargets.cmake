# How this project's targets are built: warnings, precompiled header, ccache, linker.
find_program(REPRISE_CCACHE ccache)
if(REPRISE_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Without this sloppiness ccache refuses every file that uses a precompiled header. With the base folder two checkouts
  # share what they compile.
  set(CMAKE_CXX_COMPILER_LAUNCHER "${CMAKE_COMMAND};-E;env;CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime;CCACHE_BASEDIR=${PROJECT_SOURCE_DIR};CCACHE_NOHASHDIR=1;${REPRISE_CCACHE}")
endif()

include(CheckLinkerFlag)
check_linker_flag(CXX -fuse-ld=mold REPRISE_HAS_MOLD)

# reprise_target(<target>): the settings that every target of ours shares.
function(reprise_target target)
  target_compile_features(${target} PUBLIC cxx_std_20)
  set_target_properties(${target} PROPERTIES CXX_EXTENSIONS OFF)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wpedantic -Wshadow -Wconversion -fpch-preprocess)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    # g++ 12 sees both in std::string's own code (its bugs 105329 and 105651).
    target_compile_options(${target} PRIVATE -Wno-stringop-overflow -Wno-restrict)
  endif()
  # Not the property: it gives programs -fPIE, and then they cannot share the precompiled header.
  target_compile_options(${target} PRIVATE -fPIC)
  if(REPRISE_WARNINGS_AS_ERRORS)
    # The same kind of false alarm; a warning is enough.
    target_compile_options(${target} PRIVATE -Werror -Wno-error=array-bounds)
  endif()
  if(REPRISE_HAS_MOLD)
    target_link_options(${target} PRIVATE -fuse-ld=mold)
  endif()
endfunction()

# reprise_precompile(<target>): use the one precompiled torch.h, which target `reprise` makes.
function(reprise_precompile target)
  if(NOT REPRISE_PRECOMPILE)
    return()
  endif()
  if(target STREQUAL "reprise")
    target_precompile_headers(reprise PRIVATE <torch/torch.h>)
  else()
    target_precompile_headers(${target} REUSE_FROM reprise)
  endif()
endfunction()
