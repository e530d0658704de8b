"""What an acl.json tells a program to record: asked, changed, checked."""
